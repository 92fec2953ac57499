"""Messages on their way out: who takes nothing for a minute has stalled, and its request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.deadlines import done_within
from api.errors import ApiError
from api.telemetry import ended

SEND_SECONDS = 60.0
"""For a client to take some more, as in a WebSocket session."""
PIECE_BYTES = 2**15
"""What is handed over at once: the connection keeps that, however long its client takes."""


class StalledError(ApiError):
    """The client took nothing for `SEND_SECONDS`."""


def stalled() -> StalledError:
    return StalledError(499, "client_stalled", f"The client took nothing for {SEND_SECONDS:g} s.")


class TakenInTime:
    """ASGI middleware: a body goes out piece by piece, each as the client makes room for it. Raises StalledError."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_in_time(message: Message) -> None:
            for piece in _pieces(message):
                try:
                    await done_within(SEND_SECONDS, send(piece))
                except asyncio.TimeoutError:
                    problem = stalled()
                    ended(problem.code)
                    raise problem from None

        await self._app(scope, receive, send_in_time)


def _pieces(message: Message) -> Iterator[Message]:
    body = message.get("body", b"")
    if len(body) <= PIECE_BYTES:
        yield message
        return
    for begin in range(0, len(body), PIECE_BYTES):
        more = message.get("more_body", False) or begin + PIECE_BYTES < len(body)
        yield {**message, "body": body[begin : begin + PIECE_BYTES], "more_body": more}
