"""Messages on their way in: how large they may be, how long they are waited for, and which thread reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import Request

from api.errors import ApiError

MAX_BODY_BYTES = 16 * 1024 * 1024  # a reference recording of 10 MB as base64, and the text
LARGE_BODY_BYTES = 64 * 1024
MESSAGE_SECONDS = 300.0
"""For a whole body, or the message of a unary call."""
GOODBYE_SECONDS = 1.0
"""For what is on its way when the drain begins."""
# Each large body takes several times its size while it is read, and each thread takes its turns from the loop's.
_READERS = ThreadPoolExecutor(2, "reader")

Whole = TypeVar("Whole")
Parsed = TypeVar("Parsed")


async def read_bytes(request: Request) -> bytes:
    """The whole body. Raises ApiError payload_too_large, and those of `arrived`."""
    return await arrived(_body(request), MESSAGE_SECONDS, request.app.state.draining)


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


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(413, "payload_too_large", f"The body is over {MAX_BODY_BYTES // 2**20} MiB.")
    return bytes(data)
