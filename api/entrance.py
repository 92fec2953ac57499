"""Where every HTTP request and WebSocket comes in, and where its response leaves: with an id, whatever it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors
from api.auth import is_open
from api.connection import CLIENT_CLOSED_REQUEST
from api.departure import StalledError
from api.exchange import Exchange, begun

logger = logging.getLogger("cosyserve.api")

_NORMAL_CLOSE = 1000
_STARTS = frozenset(["http.response.start", "websocket.http.response.start", "websocket.accept"])


class Entrance:
    """ASGI middleware: every response has the client's `X-Request-Id` or one of its own, WebSocket handshakes too; each
    request is one `Exchange`, and errors that nobody expected get a response.

    Every response also says that browsers are to take it for what it claims to be.
    """

    def __init__(self, app: ASGIApp, respond: Callable[[errors.ApiError, Scope], JSONResponse]) -> None:
        self._app, self._respond = app, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        session = scope["type"] == "websocket"
        method = "WEBSOCKET" if session else scope["method"]
        with begun(Headers(scope=scope), method, session=session, quiet=is_open(scope)) as exchange:
            try:
                await self._answer(exchange, scope, receive, send)
            except asyncio.CancelledError:
                exchange.ended("cancelled")
                raise
            finally:
                exchange.route = getattr(scope.get("route"), "path", exchange.route)
                exchange.caller = scope.get("state", {}).get("caller")

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] in _STARTS:
                started = True
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = exchange.request_id
                headers["X-Content-Type-Options"] = "nosniff"
            _note(exchange, message)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # in the middle of its upload
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send_with_id)
        except Exception as error:
            exchange.ended(errors.as_api_error(error).code)
            expected = isinstance(error, errors.ApiError) and not started
            stalled = isinstance(error.__cause__ or error, StalledError)  # Starlette's own error, of a broken answer
            if not (expected or stalled):
                logger.error("a request failed", exc_info=error)
            if started or exchange.session:  # the broken body tells the client
                raise
            await self._respond(errors.as_api_error(error), scope)(scope, receive, send_with_id)


def _note(exchange: Exchange, message: Message) -> None:
    """What a message on its way out says of how the exchange ends."""
    if message["type"] == "websocket.accept":
        exchange.status = 101
    elif message["type"] == "websocket.close":
        if message.get("code", _NORMAL_CLOSE) != _NORMAL_CLOSE:
            exchange.close_code = message["code"]
            exchange.ended(message.get("reason") or "closed")
    elif "status" in message:
        exchange.status = message["status"]
        if message["status"] == CLIENT_CLOSED_REQUEST:
            exchange.ended("cancelled")
        elif message["status"] >= 400:  # what has a code has said it before
            exchange.ended("http_error")
