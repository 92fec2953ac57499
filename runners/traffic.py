"""BentoML's limit of time, taken out: it keeps a timer of each request until the time has passed, also when the request
ended long ago, and with it all that the request's context holds. What has to end in time does so by limits of its own.
"""

from __future__ import annotations

from bentoml._internal.server.http import traffic
from starlette.types import ASGIApp, Receive, Scope, Send


class Untimed:
    """ASGI middleware in the place of BentoML's, which has no other way to be left out."""

    def __init__(self, app: ASGIApp, timeout: float) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def untimed() -> None:
    """For all services of this process that have not been served yet."""
    traffic.TimeoutMiddleware = Untimed  # type: ignore[misc, assignment]
