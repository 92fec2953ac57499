"""Messages on their way in: how large they may be, how long they are waited for, and which thread reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError

MAX_BODY_BYTES = 16 * 1024 * 1024  # a reference recording of 10 MB as base64, and the text
MAX_BYTES_BY_PATH = {
    "/v1/audio/voice-conversion": 24 * 1024 * 1024,  # two recordings of 10 MB
    "/v1/pronunciation-dictionaries": 2 * 1024 * 1024,
    "/v1/text/normalize": 2 * 1024 * 1024,
}
LARGE_BODY_BYTES = 64 * 1024
MESSAGE_SECONDS = 300.0
"""For a whole body, or the message of a unary call."""
GOODBYE_SECONDS = 1.0
"""For what is on its way when the drain begins."""
# Each large body takes several times its size while it is read, and each thread takes its turns from the loop's.
_READERS = ThreadPoolExecutor(2, "reader")

Whole = TypeVar("Whole")
Parsed = TypeVar("Parsed")


class WholeBodies:
    """ASGI middleware: a request's handler begins when its whole body is here, and small enough for its path.

    Raises ApiError payload_too_large, and those of `arrived`.
    """

    def __init__(self, app: ASGIApp, draining: asyncio.Event) -> None:
        self._app, self._draining = app, draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = MAX_BYTES_BY_PATH.get(scope["path"], MAX_BODY_BYTES)
        if Headers(scope=scope).get("expect") and _declared(scope) > limit:  # the client asks before it sends
            raise _too_large(limit)
        body: bytes | None = await arrived(_body(receive, limit), MESSAGE_SECONDS, self._draining)

        async def receive_whole() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message = {"type": "http.request", "body": body, "more_body": False}
            body = None
            return message

        await self._app(scope, receive_whole, send)


async def read_bytes(request: Request) -> bytes:
    """The whole body."""
    return await request.body()


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
    return await asyncio.get_running_loop().run_in_executor(_READERS, read, data)


def draining_error() -> ApiError:
    return ApiError(503, "draining", "The server is stopping. Try again shortly.")


async def _body(receive: Receive, limit: int) -> bytes:
    data, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data += message.get("body", b"")
        more = message.get("more_body", False)
        if len(data) > limit:
            raise _too_large(limit)
    return bytes(data)


def _declared(scope: Scope) -> int:
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "payload_too_large", f"The body is over {limit // 2**20} MiB.")
