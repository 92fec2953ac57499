"""One WebSocket connection on which text arrives and speech leaves, whatever the protocol of its messages."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect
from starlette.types import Message

from api.arrival import arrived, draining_error, parsed
from api.deadlines import done_within
from api.departure import SEND_SECONDS
from api.errors import ApiError, as_api_error
from api.live import Listener, Narrator
from api.open_sessions import SESSIONS
from api.schema import loads
from api.session_end import GONE, NORMAL, POLICY, RESTART, TOO_BIG, UNSUPPORTED_DATA, FatalError, fatal
from api.synthesis import Speaker, SpeechWish, prepare
from api.telemetry import ended
from api.threads import TEXT_READERS, run_in
from runners.request import ModelInfo
from text.incremental import IncrementalText

_LARGE_TEXT = 2000  # characters; more are cut in a thread, as the loop feeds every stream
# Something that every model can say: it stands in for the text to come.
_SOMETHING = "1"


@dataclass(frozen=True)
class Limits:
    """Of one session. Seconds without a message while nothing is spoken; for one message to be taken by the client; for
    the current sentence after the drain began. Bytes of a message that brings no reference recording. Characters."""

    idle_s: float = 120.0
    send_s: float = SEND_SECONDS
    drain_s: float = 60.0
    message_bytes: int = 256 * 1024
    message_characters: int = 20_000
    session_characters: int = 200_000


DRAIN_SECONDS = Limits.drain_s + 5.0
"""From the drain's begin, all sessions have ended, but for those whose client does not even take the last message."""


class LiveSession(Listener, ABC):
    """Waits for messages, its narrator, the drain and silence, all at once; a subclass gives them their meaning.

    Only `run` and what it calls change the session's state.
    """

    def __init__(self, socket: WebSocket, speaker: Speaker, limits: Limits, route: str) -> None:
        self.socket, self.speaker, self.limits = socket, speaker, limits
        self.info: ModelInfo
        self.narrator: Narrator
        self.characters = 0
        self.text = IncrementalText()
        self._route = route
        self._narrating: asyncio.Task[None] | None = None
        self._deadline: float | None = None  # once the drain has begun

    # -- what a protocol says ----------------------------------------------------------------------------------

    async def opened(self) -> None:
        """The connection is there."""

    @abstractmethod
    async def received(self, message: dict[str, Any], size: int) -> None:
        """A JSON object of `size` characters. Raises ApiError, which `refused` gets, and FatalError."""

    @abstractmethod
    async def refused(self, problem: ApiError, *, fatal: bool) -> None:
        """Tell the client of a message that cannot be followed, or, `fatal`, why the connection ends."""

    @abstractmethod
    async def spoken(self) -> bool:
        """The narrator has finished. Whether the connection stays."""

    # -- for the protocols -------------------------------------------------------------------------------------

    def narrate(self) -> None:
        """Begin a narrator that speaks what it is told, to this session."""
        self.narrator = Narrator(self.speaker, self.info, self._route)
        self._narrating = asyncio.create_task(self.narrator.run(self))

    async def silence(self) -> None:
        """Stop speaking, at once: the engine's requests end."""
        if self._narrating is None:
            return
        narrating, self._narrating = self._narrating, None
        await _cancelled(narrating)
        if not narrating.cancelled():
            narrating.result()

    async def rehearse(self, wish: SpeechWish) -> None:
        """Raises what keeps any text from being spoken as `wish` has it."""
        await prepare(self.speaker, replace(wish, text=_SOMETHING), self.info)

    def check_size(self, size: int) -> None:
        """Raises FatalError for a message, of `size` characters, that is larger than one of text may be."""
        if size > self.limits.message_bytes:
            text = f"The message has {size:,} characters, over {self.limits.message_bytes:,}."
            raise FatalError(ApiError(413, "payload_too_large", text), TOO_BIG)

    async def pieces(self, text: str) -> list[str]:
        """What `text`, with what came before it, has to be spoken now. Raises ApiError input_too_long."""
        self.count(text)
        feed = self.text.feed
        return _worded(await run_in(TEXT_READERS, feed, text) if len(text) > _LARGE_TEXT else feed(text))

    def last_pieces(self) -> list[str]:
        """The rest: no more text will come."""
        return _worded(self.text.flush())

    def count(self, text: str) -> None:
        """Take `text` into the session's account. Raises ApiError input_too_long."""
        limits = self.limits
        if len(text) > limits.message_characters:
            message = f"The text has {len(text):,} characters; one message takes {limits.message_characters:,}."
            raise ApiError(400, "input_too_long", message, "text")
        if self.characters + len(text) > limits.session_characters:
            message = f"One session takes {limits.session_characters:,} characters; open another one."
            raise ApiError(400, "input_too_long", message, "text")
        self.characters += len(text)

    async def send(self, event: dict[str, Any]) -> None:
        await self._taken(self.socket.send_text(json.dumps(event)))

    async def send_audio(self, data: bytes) -> None:
        await self._taken(self.socket.send_bytes(data))

    # ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From the handshake to the close. Returns when the connection is over, however it ended."""
        if self.socket.app.state.draining.is_set():
            ended(draining_error().code)
            await self.socket.send_denial_response(draining_error().response())
            return
        await self.socket.accept()
        with SESSIONS.one():
            try:
                await self._serve()
                await self.socket.close(NORMAL)
            except FatalError as end:
                ended(end.problem.code)
                await self._end(end)
            except WebSocketDisconnect:
                ended("cancelled")
            finally:
                await asyncio.shield(self._stopped())

    async def _end(self, end: FatalError) -> None:
        await self._stopped()  # nothing is heard after the error
        try:
            await self.refused(end.problem, fatal=True)
            await self.socket.close(end.close_code, end.problem.code)
        except WebSocketDisconnect:
            pass

    async def _stopped(self) -> None:
        if self._narrating is not None:
            await _cancelled(self._narrating)

    async def _serve(self) -> None:
        try:
            self.info = await self.speaker.backend.describe()
        except Exception as error:
            raise fatal(error) from error
        await self.opened()
        receiving = asyncio.create_task(self.socket.receive())
        drained = asyncio.create_task(self.socket.app.state.draining.wait())
        try:
            while True:
                done = await self._something(receiving, drained)
                if self._narrating in done:
                    await self._narrated()
                    if not await self.spoken():
                        return
                elif receiving in done:
                    message = receiving.result()
                    receiving = asyncio.create_task(self.socket.receive())
                    await self._take_or_drain(message)
                else:
                    self._drain()
        finally:
            drained.cancel()
            receiving.cancel()

    async def _something(self, receiving: asyncio.Task[Any], drained: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
        """What has happened. Raises FatalError where nothing does for too long."""
        while True:
            events = {
                receiving,
                *([] if self._deadline else [drained]),
                *([self._narrating] if self._narrating else []),
            }
            now = asyncio.get_running_loop().time()
            seconds = self.limits.idle_s if self._deadline is None else max(0.0, self._deadline - now)
            done, _ = await asyncio.wait(events, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done
            if self._deadline is not None:
                raise FatalError(draining_error(), RESTART)
            if self._narrating is None or self.narrator.idle:
                message = f"Nothing came for {self.limits.idle_s:g} s."
                raise FatalError(ApiError(408, "idle_timeout", message), POLICY)

    def _drain(self) -> None:
        """The server is to stop: the sentence that is spoken may end, and nothing else is taken."""
        if self._narrating is None or self.narrator.idle:
            raise FatalError(draining_error(), RESTART)
        self._deadline = asyncio.get_running_loop().time() + self.limits.drain_s
        self.narrator.drop_rest()

    async def _narrated(self) -> None:
        assert self._narrating is not None
        narrating, self._narrating = self._narrating, None
        try:
            narrating.result()
        except (FatalError, WebSocketDisconnect):
            raise
        except Exception as error:
            raise fatal(error) from error
        if self._deadline is not None:
            raise FatalError(draining_error(), RESTART)

    async def _take_or_drain(self, message: Message) -> None:
        """What a message waits for may hang: once the drain has begun, it is left after a goodbye's time."""
        with suppress(ApiError):  # `draining`, of which the caller is to hear anyway
            await arrived(self._take(message), None, self.socket.app.state.draining)

    async def _take(self, message: Message) -> None:
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", NORMAL))
        if self._deadline is not None:
            return
        if (text := message.get("text")) is None:
            raise FatalError(ApiError(400, "invalid_type", "Messages are JSON text, not binary."), UNSUPPORTED_DATA)
        try:
            values = await parsed(loads, text.encode())
            if not isinstance(values, dict):
                raise ApiError(422, "invalid_type", "A message must be a JSON object.")
            await self.received(values, len(text))
        except (FatalError, WebSocketDisconnect):
            raise
        except Exception as error:
            problem = as_api_error(error)
            if problem.status >= 500 and problem.status != 503:
                raise fatal(error) from error
            await self.refused(problem, fatal=False)

    async def _taken(self, sending: Awaitable[None]) -> None:
        """A message that the client does not take in time ends the session: it has stalled."""
        try:
            await done_within(self.limits.send_s, sending)
        except (asyncio.TimeoutError, RuntimeError) as error:  # RuntimeError: the connection is closed already
            raise WebSocketDisconnect(GONE) from error


def _worded(pieces: list[str]) -> list[str]:
    return [piece for piece in pieces if not piece.isspace()]


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Returns when `task` has ended. Asked more than once, as what it waits for may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.5)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody misses it
