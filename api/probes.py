"""Readiness during a drain: the answer is no at once, and no probe keeps the process from ending."""

from __future__ import annotations

import asyncio

from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

READINESS_PATH = "/readyz"


class DrainingReadiness:
    """ASGI middleware: `/readyz` is 503 from the moment `draining` is set, also for probes under way.

    A probe asks the runners, and one that has stopped already would never answer: the shutdown would wait for it.
    """

    def __init__(self, app: ASGIApp, draining: asyncio.Event) -> None:
        self._app, self._draining = app, draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != READINESS_PATH:
            await self._app(scope, receive, send)
            return
        probe = asyncio.ensure_future(self._app(scope, receive, send))
        drain = asyncio.ensure_future(self._draining.wait())
        await asyncio.wait({probe, drain}, return_when=asyncio.FIRST_COMPLETED)
        drain.cancel()
        if probe.done():
            await probe
        else:  # not waited for: the call to a runner that has stopped does not notice that it is cancelled
            probe.cancel()
            await PlainTextResponse("draining\n", 503)(scope, receive, send)
