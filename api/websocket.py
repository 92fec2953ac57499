"""`WS /v1/audio/speech/stream`: text in while it is written, speech out sentence by sentence, and a way to interrupt.

Each sentence is `audio.start`, binary messages that are one whole file of the session's format, `audio.done`. An
utterance is what comes between two flushes; when all of it has been heard there is `utterance.done`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, WebSocket
from pydantic import BaseModel, ConfigDict

from api.bodies import wants_segments, wish_of
from api.dictation import Arriving, Dictation
from api.errors import ApiError, as_api_error
from api.live import EndOfUtterance, Line, Place, Spoken
from api.live_session import Limits, LiveSession
from api.references import Reference
from api.schema import validated
from api.session_config import SessionConfig, merged, read_config, speaks_anew
from api.synthesis import Speaker, Speech, SpeechWish
from audio.encode import Encoder, make_encoder
from text.incremental import IncrementalText
from text.options import AUTO, TextOptions

ROUTE = "speech_stream"


class InputText(BaseModel):
    """`input.text`: any portion of the text, as it comes."""

    model_config = ConfigDict(extra="forbid")

    text: str


def router(speaker: Speaker, limits: Limits | None = None) -> APIRouter:
    """The route. `limits` None: the usual ones."""
    routes = APIRouter()

    @routes.websocket("/v1/audio/speech/stream")
    async def stream(socket: WebSocket) -> None:
        """Text goes in as it is written, speech comes out sentence by sentence. Messages are JSON with a `type`.

        The client sends:

        * `session.config`: fields of the speech endpoint (`voice`, `format`, `sample_rate`, `speed`, `instructions`,
          `language`, `ref_audio` ...) and `policy`: `sentence`, `clause`, or `model`, where the model itself speaks
          while a sentence is being written (400 `unsupported_parameter` where it cannot). Answered by
          `session.updated`; holds for text that comes later. What a later one leaves out stays as it was. May be left
          out. One that is refused changes nothing, and until one holds no text is taken: each `input.text` is answered
          by an `error` with the code of that refusal.
        * `input.text`: `text`, any portion of it, at most 20,000 characters; 200,000 in a session.
        * `input.flush`: the utterance is complete, its rest is spoken. Without it a sentence is spoken as soon as
          what follows shows that it has ended.
        * `input.done`: all text is here. When it has been spoken, the session ends.
        * `response.cancel`: barge-in. What is being spoken stops at once, what is queued is dropped, the session lives.
        * `session.close`: the session ends at once.

        The server sends `session.created`, then for each sentence `audio.start` (`utterance_index`, `sentence_index`,
        `sample_rate`, `format`, `text`, `seed`), binary messages that together are one whole file of that format,
        `audio.timestamps` (`segments`) if `timestamp_granularities` is `["segment"]`, and `audio.done`
        (`finish_reason`: `stop`, `length`, or, where the file is not whole, `cancelled` or `error`). By the policy
        `model` the `text` of `audio.start` is what was written by then, and `audio.done` has all of it.
        `utterance.done` follows the last sentence of an utterance, `session.done` the last of the session.

        `error` has `code`, `message`, `param` and `fatal`. One that is not fatal concerns one message, or the rest of
        one utterance. A fatal one is followed by the close: 1003 for a binary message, 1008 after two minutes of
        silence, 1009 for a message over 256 KiB (a `session.config` may have 16 MiB), 1011 if the server failed, 1012
        if it stops (after the sentence that is being spoken), 1013 if another try is worth while.
        """
        await SpeechStream(socket, speaker, limits or Limits(), ROUTE).run()

    return routes


class SpeechStream(LiveSession):
    """One session."""

    def __init__(self, socket: WebSocket, speaker: Speaker, limits: Limits, route: str) -> None:
        super().__init__(socket, speaker, limits, route)
        self._config = validated({}, SessionConfig)
        self._given: dict[str, Any] = {}  # by all session.config so far
        self._recording: Reference | None = None
        self._refusal: ApiError | None = None  # of the last session.config
        self._wish: SpeechWish
        self._timed = False
        self._utterance = 0
        self._finished = 0  # utterances of which the client knows the end
        self._unfinished = False  # the utterance has text, and no end yet
        self._done = False  # after input.done
        self._dictation = Dictation(speaker.backend.frontend, self._dictated, lambda text: self._say([text]))
        self._spoken = {"sentences": 0, "audio_ms": 0}
        self._handlers: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "session.config": self._configure,
            "input.text": self._input,
            "input.flush": self._flush,
            "input.done": self._finish,
            "response.cancel": self._cancel,
            "session.close": self._close,
        }

    # -- messages ----------------------------------------------------------------------------------------------

    async def opened(self) -> None:
        self._wish = wish_of(self._config, stream=True)
        self.narrate()
        await self.send({"type": "session.created", "session_id": secrets.token_hex(16), **self._described()})

    async def received(self, message: dict[str, Any], size: int) -> None:
        kind = message.pop("type", None)
        if kind != "session.config":  # which may bring a recording
            self.check_size(size)
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            raise ApiError(400, "invalid_value", f"type is one of {', '.join(self._handlers)}.", "type")
        await handler(message)

    async def refused(self, problem: ApiError, *, fatal: bool) -> None:
        error = {"code": problem.code, "message": problem.message, "param": problem.param, "fatal": fatal}
        await self.send({"type": "error", **error})

    async def spoken(self) -> bool:
        await self._say_goodbye()
        return False

    async def _configure(self, message: dict[str, Any]) -> None:
        try:
            await self._follow(message)
        except Exception as error:
            self._refusal = as_api_error(error)
            raise
        self._refusal = None

    async def _follow(self, message: dict[str, Any]) -> None:
        given = merged(self._given, message)
        recording = None if speaks_anew(message) else self._recording
        config = read_config(given, self.info)
        timed = wants_segments(config)
        wish = wish_of(config, stream=True, recording=recording)
        if isinstance(wish.ref_audio, str):
            wish = replace(wish, ref_audio=await self.speaker.references.read(wish.ref_audio))
            config.ref_audio = config.references = None  # its bytes are enough
        await self.rehearse(wish)
        self._given = {name: value for name, value in given.items() if name not in ("ref_audio", "references")}
        self._given["ref_text"], self._recording = wish.ref_text, wish.ref_audio
        self._dictation.end()
        self._config, self._wish, self._timed = config, wish, timed
        self.text.policy = config.policy
        await self.send({"type": "session.updated", **self._described()})

    async def _input(self, message: dict[str, Any]) -> None:
        if self._done:
            raise ApiError(400, "invalid_value", "After input.done no text is taken.", "type")
        if (problem := self._refusal) is not None:  # the text would be heard otherwise than it was asked for
            told = f"The last session.config was refused: send it anew before any text. {problem.message}"
            raise ApiError(problem.status, problem.code, told, problem.param)
        text = validated(message, InputText).text
        if self._config.policy == "model":
            self.count(text)
            self._unfinished = self._unfinished or bool(text)
            await self._dictation.feed(self.text, text, _reading(self._wish))
            return
        pieces = await self.pieces(text)
        self._unfinished = self._unfinished or bool(text)
        self._say(pieces)

    async def _flush(self, message: dict[str, Any]) -> None:
        _without_fields(message)
        await self._end_utterance()

    async def _finish(self, message: dict[str, Any]) -> None:
        _without_fields(message)
        self._done = True
        await self._end_utterance()
        self.narrator.finish()

    async def _cancel(self, message: dict[str, Any]) -> None:
        _without_fields(message)
        await self._interrupt()
        self._done = False
        self.narrate()

    async def _close(self, message: dict[str, Any]) -> None:
        _without_fields(message)
        await self._interrupt()
        self._done = True
        self.narrate()
        self.narrator.finish()

    def _say(self, pieces: list[str]) -> None:
        for piece in pieces:
            wish = replace(self._wish, text=piece)
            self.narrator.say(Line(wish, self._utterance, self._config.response_format, self._timed))

    def _dictated(self, arriving: Arriving) -> None:
        wish = replace(self._wish, arriving=arriving)
        self.narrator.say(Line(wish, self._utterance, self._config.response_format, self._timed))

    async def _end_utterance(self) -> None:
        if self._unfinished:
            if self._config.policy == "model":
                await self._dictation.flush(self.text, _reading(self._wish))
            else:
                self._say(self.last_pieces())
            self.narrator.say(EndOfUtterance(self._utterance))
            self._utterance += 1
            self._unfinished = False

    async def _interrupt(self) -> None:
        """Stop at once, and forget what was to be spoken."""
        self._dictation.drop()
        await self.silence()
        self._utterance += self._unfinished
        await self.narrator.cancelled(range(self._finished, self._utterance), self)
        self._unfinished = False
        self.text = IncrementalText(self._config.policy)

    async def _say_goodbye(self) -> None:
        await self.send(
            {"type": "session.done", "utterances": self._utterance, "characters": self.characters, **self._spoken}
        )

    def _described(self) -> dict[str, Any]:
        return {
            "model": self.info.name,
            "voice": self._wish.voice or self.info.default_voice,
            "format": self._config.response_format,
            "sample_rate": self._wish.sample_rate or self.info.sample_rate,
            "policy": self._config.policy,
        }

    # -- what the narrator tells -------------------------------------------------------------------------------

    def encoder(self, line: Line, speech: Speech) -> Encoder:
        return make_encoder(line.audio_format, speech.sample_rate)

    async def begun(self, spoken: Spoken) -> None:
        wish = spoken.line.wish
        text = wish.text if wish.arriving is None else wish.arriving.text
        what = {"format": spoken.line.audio_format, "text": text, "seed": spoken.speech.seed}
        start = {"sample_rate": spoken.encoder.sample_rate, **what}
        await self.send({"type": "audio.start", **_indices(spoken.place), **start})

    async def audio(self, data: bytes) -> None:
        await self.send_audio(data)

    async def ended(self, spoken: Spoken) -> None:
        place, summary = spoken.place, spoken.speech.summary
        milliseconds = round(1000 * max((segment.end_s for segment in summary.segments), default=0.0))
        self._spoken["sentences"] += 1
        self._spoken["audio_ms"] += milliseconds
        if spoken.line.timed:
            segments = [asdict(segment) for segment in summary.segments]
            await self.send({"type": "audio.timestamps", **_indices(place), "segments": segments})
        how: dict[str, Any] = {"finish_reason": summary.finish_reason, "audio_ms": milliseconds}
        if (arriving := spoken.line.wish.arriving) is not None:
            how["text"] = arriving.text
        await self.send({"type": "audio.done", **_indices(place), **how})

    async def broken(self, place: Place, reason: str) -> None:
        await self.send({"type": "audio.done", **_indices(place), "finish_reason": reason})

    async def failed(self, utterance: int, problem: ApiError) -> None:
        await self.refused(problem, fatal=False)

    async def finished(self, utterance: int, sentences: int, reason: str) -> None:
        self._finished = utterance + 1
        done = {"utterance_index": utterance, "sentences": sentences, "finish_reason": reason}
        await self.send({"type": "utterance.done", **done})


def _reading(wish: SpeechWish) -> TextOptions:
    return wish.options if wish.language == AUTO else replace(wish.options, language=wish.language)


def _indices(place: Place) -> dict[str, int]:
    return {"utterance_index": place.utterance, "sentence_index": place.sentence}


def _without_fields(message: dict[str, Any]) -> None:
    if message:
        name = next(iter(message))
        raise ApiError(400, "unknown_parameter", f"There is no parameter `{name}` here.", name)
