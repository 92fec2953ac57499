"""Work that stops when its client goes away before the response has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from fastapi import Request, Response

# nginx's code for a client that closed the connection; nobody reads it, but it tells the middlewares that hold a place
# for this request that it is over.
CLIENT_CLOSED_REQUEST = 499


async def run_while_connected(request: Request, work: Coroutine[None, None, Response]) -> Response:
    """The response of `work`, which is cancelled as soon as the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        for future in (task, gone):
            future.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
