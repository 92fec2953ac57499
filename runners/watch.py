"""A connection to a runner that stays open: when its process dies, who waits for it knows at once.

The socket that a runner listens on belongs to BentoML's parent process and outlives it: what connects meanwhile would
wait for the next process, and in a container, where no other one is started, for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import aiohttp
from aiohttp import WSCloseCode
from starlette.types import Receive, Scope, Send

from runners.probe import connect, is_ready
from runners.request import RequestError

WATCH_PATH = "/watch/"
RETRY_SECONDS = 0.1

Answer = TypeVar("Answer")


async def watched(scope: Scope, receive: Receive, send: Send) -> None:
    """The runner's end, an ASGI app: takes WebSockets, and neither says nor hears anything."""
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


class RunnerWatch:
    """The entry service's end, for the runner `name` at `url` (see `connect`). Use from one event loop."""

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, url
        self._gone = asyncio.Event()
        self._gone.set()
        self._task = asyncio.create_task(self._watch())

    async def is_ready(self) -> bool:
        """Whether the runner's process lives and says that it is ready."""
        try:
            return await self.answer(is_ready(self._url))
        except RequestError:
            return False

    async def gone(self) -> None:
        """Returns when the runner's process is gone, or at once where there is none."""
        await self._gone.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def answer(self, call: Awaitable[Answer]) -> Answer:
        """What a call to the runner returns. Raises RequestError engine_unavailable as soon as its process is gone."""
        task, gone = asyncio.ensure_future(call), asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise self.unavailable()
        finally:
            task.cancel()
            gone.cancel()

    def unavailable(self) -> RequestError:
        return RequestError("engine_unavailable", f"The {self._name} is not available. Try again shortly.", 503)

    async def _watch(self) -> None:
        connector, base = connect(self._url)
        # No time limit: between two processes the connection waits for the next one, which takes it when it can serve.
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            while True:
                with suppress(aiohttp.ClientError, OSError):
                    async with session.ws_connect(base + WATCH_PATH) as link:
                        self._gone.clear()
                        await link.receive()
                        # A runner that was told to stop says goodbye, and finishes what it has begun.
                        if link.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                            self._gone.set()
                await asyncio.sleep(RETRY_SECONDS)
