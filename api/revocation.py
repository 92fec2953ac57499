"""Long connections whose key is taken away, or whose token expires, while they are open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.types import Message, Receive, Send
from starlette.websockets import WebSocketDisconnect

from api.errors import ApiError
from api.telemetry import ended

logger = logging.getLogger("cosyserve.api")

CHECK_SECONDS = 2.0
POLICY_VIOLATION = 1008  # RFC 6455, section 7.4.1
Value = TypeVar("Value")


class Watch:
    """Asks again and again whether a caller is still let in. `problem`: why not any more."""

    def __init__(self) -> None:
        self.problem: ApiError | None = None
        self._asking: asyncio.Task[None]

    @classmethod
    @asynccontextmanager
    async def of(cls, check: Callable[[], Awaitable[object]]) -> AsyncIterator[Watch]:
        """`check` raises ApiError 401 or 403 for who is not; one that cannot tell, or breaks, says nothing."""
        watch = cls()
        watch._asking = asyncio.create_task(watch._ask(check))
        try:
            yield watch
        finally:
            watch._asking.cancel()

    async def _ask(self, check: Callable[[], Awaitable[object]]) -> None:
        told = False
        while self.problem is None:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await check()
            except ApiError as problem:
                if problem.status in (401, 403):
                    self.problem = problem
                    ended(problem.code)  # before what it interrupts ends as if its client had left
            except Exception:
                if not told:  # once in a session: it is asked every other second
                    logger.exception("whether a caller is still let in could not be asked")
                told = True

    async def meanwhile(self, work: Awaitable[Value], otherwise: Value) -> Value:
        """The result of `work`, or `otherwise` as soon as the caller is not let in any more."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._asking}, return_when=asyncio.FIRST_COMPLETED)
            return otherwise if self.problem is not None else task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})  # a generator cannot be closed while it runs


async def run_session(
    run: Callable[[Receive, Send], Awaitable[None]],
    receive: Receive,
    send: Send,
    check: Callable[[], Awaitable[object]],
) -> None:
    """`run` a WebSocket session. Once `check` fails, the session finds its client gone, which ends what it does, and
    the client gets the close: 1008, with the code of the problem."""
    closed = False
    async with Watch.of(check) as watch:

        async def receive_while_let_in() -> Message:
            return await watch.meanwhile(receive(), {"type": "websocket.disconnect", "code": POLICY_VIOLATION})

        async def send_while_let_in(message: Message) -> None:
            nonlocal closed
            if watch.problem is None:
                closed = closed or message["type"] == "websocket.close"
                await send(message)

        try:
            await run(receive_while_let_in, send_while_let_in)
        except WebSocketDisconnect:
            if watch.problem is None:
                raise
        if watch.problem is not None and not closed:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": watch.problem.code})
