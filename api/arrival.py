"""Messages on their way in: how large they may be, how long they are waited for, and which thread reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import OPEN_PATHS
from api.errors import ApiError
from api.threads import BODY_READERS, run_in

MAX_BODY_BYTES = 16 * 1024 * 1024  # a reference recording of 10 MB as base64, and the text
MAX_BYTES_BY_PATH = {
    "/v1/audio/voice-conversion": 24 * 1024 * 1024,  # two recordings of 10 MB
    "/v1/pronunciation-dictionaries": 2 * 1024 * 1024,
    "/v1/text/normalize": 2 * 1024 * 1024,
}
LARGE_BODY_BYTES = 64 * 1024
MAX_BYTES_AT_ONCE = 256 * 1024 * 1024
"""Of all large bodies together that have not been answered yet."""
MESSAGE_SECONDS = 300.0
"""For a whole body, or the message of a unary call."""
GOODBYE_SECONDS = 1.0
"""For what is on its way when the drain begins."""

Whole = TypeVar("Whole")
Parsed = TypeVar("Parsed")


class WholeBodies:
    """ASGI middleware: a request's handler begins when its whole body is here, and small enough for its path.

    Raises ApiError payload_too_large, overloaded, and those of `arrived`; and draining for all but what may be asked
    of a server that stops.
    """

    def __init__(self, app: ASGIApp, draining: asyncio.Event) -> None:
        self._app, self._draining = app, draining
        self._bytes = 0  # of large bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._draining.is_set() and scope["path"] not in OPEN_PATHS:
            raise draining_error()
        limit = MAX_BYTES_BY_PATH.get(scope["path"], MAX_BODY_BYTES)
        if Headers(scope=scope).get("expect") and _declared(scope) > limit:  # the client asks before it sends
            raise _too_large(limit)
        with self._place() as hold:
            arriving = arrived(_body(receive, limit, hold), MESSAGE_SECONDS, self._draining)
            await self._handle(await arriving, hold, scope, receive, send)

    async def _handle(
        self, whole: bytes, hold: Callable[[int], None], scope: Scope, receive: Receive, send: Send
    ) -> None:
        body: bytes | None = whole

        async def receive_whole() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        async def send_and_let_go(message: Message) -> None:
            hold(0)  # what answers has read its body
            await send(message)

        del whole
        await self._app(scope, receive_whole, send_and_let_go)

    @contextmanager
    def _place(self) -> Iterator[Callable[[int], None]]:
        """For one body: to be told its size whenever that changes. Raises ApiError overloaded."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            size = size if size > LARGE_BODY_BYTES else 0
            if size > held and self._bytes + size - held > MAX_BYTES_AT_ONCE:
                raise ApiError(503, "overloaded", "Too many large bodies are on their way. Try again shortly.")
            self._bytes += size - held
            held = size

        try:
            yield hold
        finally:
            hold(0)


async def read_bytes(request: Request) -> bytes:
    """The whole body, which the request does not keep: it lives as long as its answer is streamed."""
    return b"".join([piece async for piece in request.stream() if piece])


async def arrived(arriving: Awaitable[Whole], seconds: float | None, draining: asyncio.Event) -> Whole:
    """What `arriving` returns. Raises ApiError upload_stalled if it takes longer than `seconds`, and draining if it
    takes longer than a goodbye once `draining` is set."""
    task = asyncio.ensure_future(arriving)
    drained = asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait({task, drained}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if draining.is_set():
            await asyncio.wait({task}, timeout=GOODBYE_SECONDS)
        if task.done():
            return task.result()
        if draining.is_set():
            raise draining_error()
        raise ApiError(408, "upload_stalled", "The message did not arrive in time.")
    finally:
        task.cancel()
        drained.cancel()


async def parsed(read: Callable[[bytes], Parsed], data: bytes) -> Parsed:
    """`read(data)`: for a large body in a thread, as the loop feeds every stream."""
    if len(data) <= LARGE_BODY_BYTES:
        return read(data)
    return await run_in(BODY_READERS, read, data)


def draining_error() -> ApiError:
    return ApiError(503, "draining", "The server is stopping. Try again shortly.")


async def _body(receive: Receive, limit: int, hold: Callable[[int], None]) -> bytes:
    data, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data += message.get("body", b"")
        more = message.get("more_body", False)
        if len(data) > limit:
            raise _too_large(limit)
        hold(len(data))
    return bytes(data)


def _declared(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "payload_too_large", f"The body is over {limit // 2**20} MiB.")
