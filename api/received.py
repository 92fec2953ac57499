"""Whatever comes is counted once, also what is refused before anybody works for it: the outcomes add up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import as_api_error
from api.exchange import current
from api.telemetry import NO_MODE, REQUESTS, SESSIONS

# What probes, pages and lists answer is nobody's speech: their share would hide that of errors.
_ROUTES = tuple(
    (re.compile(pattern), route)
    for pattern, route in (
        ("/v1/audio/speech/stream", "speech_stream"),
        ("/api-ws/v1/inference/?", "dashscope"),
        ("/v1/audio/speech/batch", "batch"),
        ("/v1/audio/speech", "speech"),
        ("/v1/audio/voice-conversion", "voice_conversion"),
        ("/v1/audio/voices/[^/]+/preview", "voice_preview"),
        ("/v1/audio/voices(/.*)?", "voices"),
        ("/v1/pronunciation-dictionaries(/.*)?", "dictionaries"),
        ("/v1/text/normalize", "text"),
        ("/inference_[a-z0-9_]+", "upstream"),
        ("/v2/models/.+/(infer|generate|generate_stream)", "oip"),
        ("/v1/models/.+:predict", "oip"),
    )
)


def route_of(scope: Scope) -> str | None:
    """The name that the metrics have for what is asked for; None: it is not counted."""
    if scope["type"] not in ("http", "websocket"):
        return None
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return next((route for pattern, route in _ROUTES if pattern.fullmatch(path)), None)


@contextmanager
def received(route: str, *, session: bool = False) -> Iterator[None]:
    """The block answers what came to `route`, one request or a session of many, within its exchange."""
    exchange = current()
    assert exchange is not None, "whatever comes is an exchange"
    try:
        yield
    except (asyncio.CancelledError, ClientDisconnect):
        exchange.ended("cancelled")
        raise
    except Exception as error:
        exchange.ended(as_api_error(error).code)
        raise
    finally:
        outcome = exchange.outcome or "ok"
        if session:
            SESSIONS.labels(route, outcome).inc()
        elif not exchange.recorded:
            REQUESTS.labels(route, NO_MODE, outcome).inc()


class Received:
    """ASGI middleware around everything that may refuse a request. A request that has a Recording is counted there, an
    item of a batch and a sentence of a session too; all others, and WebSocket sessions, are counted here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (route := route_of(scope)) is None:
            await self._app(scope, receive, send)
            return
        with received(route, session=scope["type"] == "websocket"):
            await self._app(scope, receive, send)
