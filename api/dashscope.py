"""`WS /api-ws/v1/inference`: speech for clients of DashScope's CosyVoice, whose own SDK needs no change.

A connection runs tasks one after the other: `run-task`, any number of `continue-task`, `finish-task`. A task's audio is
one file of the format it asked for, in binary messages between its events.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter, WebSocket

from api.dashscope_task import ContinueInput, FinishInput, Task, object_in, task_of
from api.errors import ApiError
from api.live import EndOfUtterance, Line, Place, Spoken
from api.live_session import Limits, LiveSession
from api.schema import validated
from api.session_end import FatalError, close_code_of
from api.synthesis import Speaker, Speech
from audio.encode import Encoder, make_encoder
from text.incremental import IncrementalText

ROUTE = "dashscope"
MAX_TASK_ID = 128


def router(speaker: Speaker, limits: Limits | None = None) -> APIRouter:
    """The route. `limits` None: the usual ones."""
    routes = APIRouter()

    @routes.websocket("/api-ws/v1/inference/")  # as the SDK's own address has it
    @routes.websocket("/api-ws/v1/inference")
    async def inference(socket: WebSocket) -> None:
        """What DashScope's own SDK speaks (`dashscope.audio.tts_v2`), with `url` pointed here.

        `run-task`, `continue-task` and `finish-task` are answered by `task-started`, `result-generated`
        (`sentence-begin`, `sentence-end`), `task-finished` and `task-failed`, whose `error_code` is a code of this
        server; after it the connection is closed. Where the server asks for API keys, `api_key` is one of them: the
        handshake without one is answered by 401, which the SDK raises as a TimeoutError after 5 s and names in its log
        only. `model` is `cosyvoice-v2` or `-v3`, as the loaded model is, or its name. `format` is any of the
        speech endpoint's; MP3 and Opus are coded at 44.1 or 48 kHz and at a bit rate of the server's choice, whatever
        `sample_rate` and `bit_rate` say. `volume`, `rate`, `pitch`, `seed`, `instruction`, `language_hints` (the
        first), `hot_fix` and `enable_markdown_filter` do what they say; with `enable_ssml`, text that begins with
        `<speak` is read as SSML once it is complete. What the server cannot do (`word_timestamp_enabled`) or does not
        know fails the task.
        """
        await DashScope(socket, speaker, limits or Limits(), ROUTE).run()

    return routes


class _OneFile:
    """An encoder for all sentences of a task: what each of them begins and ends is the whole file's only once."""

    def __init__(self, encoder: Encoder) -> None:
        self.content_type, self.sample_rate = encoder.content_type, encoder.sample_rate
        self._encoder = encoder
        self._head = encoder.begin()

    def begin(self) -> bytes:
        head, self._head = self._head, b""
        return head

    def feed(self, samples: np.ndarray) -> bytes:
        return self._encoder.feed(samples)

    def end(self) -> bytes:
        return b""

    def close(self) -> bytes:
        return self._encoder.end()


class DashScope(LiveSession):
    """One connection."""

    def __init__(self, socket: WebSocket, speaker: Speaker, limits: Limits, route: str) -> None:
        super().__init__(socket, speaker, limits, route)
        self._task_id: str | None = None
        self._task: Task  # as long as there is an id
        self._file: _OneFile | None = None
        self._markup = ""
        self._finishing = False  # after finish-task

    # -- messages ----------------------------------------------------------------------------------------------

    async def received(self, message: dict[str, Any], size: int) -> None:
        self.check_size(size)
        header, payload = object_in(message, "header"), object_in(message, "payload")
        action, task_id = header.get("action"), header.get("task_id")
        if action not in ("run-task", "continue-task", "finish-task"):
            raise ApiError(400, "invalid_value", "action is run-task, continue-task or finish-task.", "header.action")
        if action == "run-task":
            await self._run_task(task_id, payload)
            return
        if self._task_id is None or task_id != self._task_id:
            raise ApiError(400, "invalid_value", "No task with this id is running.", "header.task_id")
        if action == "continue-task":
            await self._continue(validated(object_in(payload, "input"), ContinueInput, ("input",)))
        else:
            await self._finish(validated(object_in(payload, "input"), FinishInput, ("input",)))

    async def refused(self, problem: ApiError, *, fatal: bool) -> None:
        if not fatal:  # the protocol knows no other end of a task that has a problem
            raise FatalError(problem, close_code_of(problem))
        if self._task_id is not None:
            await self._tell("task-failed", {}, error_code=problem.code, error_message=problem.message)

    async def spoken(self) -> bool:
        if self._file is not None and (rest := self._file.close()):
            await self.send_audio(rest)
        await self._task_finished()
        return True

    async def _run_task(self, task_id: Any, payload: dict[str, Any]) -> None:
        if self._task_id is not None:
            raise ApiError(400, "invalid_value", "A task is running already: finish it first.", "header.action")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_TASK_ID:
            message = f"task_id has 1 to {MAX_TASK_ID} characters."
            raise ApiError(400, "invalid_value", message, "header.task_id")
        self._task_id = task_id
        self._task = task = task_of(payload, self.info)
        await self.rehearse(task.wish)
        self.characters, self._file, self._finishing = 0, None, False
        self.text, self._markup = IncrementalText(), ""
        self.narrate()
        await self._tell("task-started", {})

    async def _continue(self, given: ContinueInput) -> None:
        self._check_unfinished()
        if text := given.text:
            if self._task.markup and (self._markup or text.lstrip().startswith("<speak")):
                self.count(text)
                self._markup += text  # markup is read as a whole
            else:
                self._say(await self.pieces(text))
        if given.flush:
            self._say(self.last_pieces())

    async def _finish(self, given: FinishInput) -> None:
        if given.directive not in (None, "cancel"):
            raise ApiError(400, "invalid_value", "directive is cancel, or left out.", "input.directive")
        if given.directive == "cancel":
            await self.silence()
            await self._task_finished()
            return
        self._check_unfinished()
        self._finishing = True
        if self._markup:
            wish = replace(self._task.wish, text=self._markup, input_type="ssml")
            self.narrator.say(Line(wish, 0, self._task.audio_format))
        self._say(self.last_pieces())
        if self.characters:
            self.narrator.say(EndOfUtterance(0))
        self.narrator.finish()

    def _check_unfinished(self) -> None:
        if self._finishing:
            raise ApiError(400, "invalid_value", "After finish-task a task takes nothing.", "header.action")

    def _say(self, pieces: list[str]) -> None:
        for piece in pieces:
            self.narrator.say(Line(replace(self._task.wish, text=piece), 0, self._task.audio_format))

    async def _task_finished(self) -> None:
        output = {"output": {"sentence": {"words": []}}, "usage": {"characters": self.characters}}
        await self._tell("task-finished", output)
        self._task_id = None

    async def _tell(self, event: str, payload: dict[str, Any], **header: str) -> None:
        head: dict[str, Any] = {"task_id": self._task_id, "event": event, **header, "attributes": {}}
        await self.send({"header": head, "payload": payload})

    async def _result(self, kind: str, place: Place, **more: Any) -> None:
        output = {"type": kind, "sentence": {"index": place.sentence, "words": []}}
        await self._tell("result-generated", {"output": {**output, **more.pop("output", {})}, **more})

    # -- what the narrator tells -------------------------------------------------------------------------------

    def encoder(self, line: Line, speech: Speech) -> Encoder:
        if self._file is None:
            self._file = _OneFile(make_encoder(line.audio_format, speech.sample_rate))
        return self._file

    async def begun(self, spoken: Spoken) -> None:
        await self._result("sentence-begin", spoken.place, output={"original_text": spoken.line.wish.text})

    async def audio(self, data: bytes) -> None:
        await self.send_audio(data)

    async def ended(self, spoken: Spoken) -> None:
        text = spoken.line.wish.text
        usage = {"characters": len(text)}
        await self._result("sentence-end", spoken.place, output={"original_text": text}, usage=usage)

    async def broken(self, place: Place, reason: str) -> None:
        """The end of the task tells it."""

    async def failed(self, utterance: int, problem: ApiError) -> None:
        raise FatalError(problem, close_code_of(problem))

    async def finished(self, utterance: int, sentences: int, reason: str) -> None:
        """The end of the task tells it."""
