"""Answers on their way to gRPC clients: who takes nothing for a minute is given up, and what waits has a bound."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from api import departure
from api.arrival import GOODBYE_SECONDS, LARGE_BODY_BYTES
from api.departure import StalledError, stalled
from api.errors import ApiError
from api.oip.errors import known, sentence
from api.telemetry import ended

SLOWEST_BYTES_PER_SECOND = 65_536
"""Of a client that is waited for."""
MAX_UNTAKEN_BYTES = 256 * 1024 * 1024
"""Of all large whole answers together that their clients have not taken."""
_STATUS = {
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.DEADLINE_EXCEEDED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class WholeAnswers:
    """Those of unary calls. gRPC keeps what a client does not take for as long as the call is open, and gives a server
    no way to end it: what has been given up still counts until the client reads on or goes."""

    def __init__(self) -> None:
        self._untaken = 0  # bytes

    async def write(self, context: grpc.aio.ServicerContext, data: bytes) -> None:
        """Raises ApiError overloaded, client_stalled."""
        size = len(data) if len(data) > LARGE_BODY_BYTES else 0
        if size and self._untaken + size > MAX_UNTAKEN_BYTES:
            raise ApiError(503, "overloaded", "Too many answers wait for their clients. Try again shortly.")
        self._untaken += size
        writing = asyncio.ensure_future(context.write(data))
        writing.add_done_callback(lambda _: self._taken(size))
        await _in_time(writing, len(data))

    def _taken(self, size: int) -> None:
        self._untaken -= size


async def write(context: grpc.aio.ServicerContext, data: bytes) -> None:
    """One answer of a stream. Raises ApiError client_stalled."""
    await _in_time(asyncio.ensure_future(context.write(data)), len(data))


async def abort(context: grpc.aio.ServicerContext, error: Exception) -> None:
    """End the call with the status that `error` is."""
    problem = known(error)
    ended(problem.code)
    status = _STATUS.get(problem.status, grpc.StatusCode.INVALID_ARGUMENT)
    aborting = asyncio.ensure_future(context.abort(status, sentence(problem)))
    if isinstance(error, StalledError):
        # The status comes behind what the client does not take.
        await asyncio.wait({aborting}, timeout=GOODBYE_SECONDS)
        if not aborting.done():
            aborting.add_done_callback(_seen)
            raise asyncio.CancelledError  # the one end that gRPC adds nothing to
    await aborting


async def _in_time(writing: asyncio.Future[Any], size: int) -> None:
    """gRPC takes no second message while one is written: `writing` is not cancelled, as that would not stop it. How
    much of a message was taken is not told: a large one has the time that a slow client needs for it."""
    writing.add_done_callback(_seen)
    await asyncio.wait({writing}, timeout=departure.SEND_SECONDS + size / SLOWEST_BYTES_PER_SECOND)
    if not writing.done():
        raise stalled()
    writing.result()


def _seen(task: asyncio.Future[Any]) -> None:
    """How it ended is looked at, so that nobody misses it."""
    if not task.cancelled():
        task.exception()
