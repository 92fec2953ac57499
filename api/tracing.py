"""What is done in the name of the current exchange, as its trace and its line in the log have it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from api.backend import Backend
from api.exchange import current
from runners.frames import Frame, FrameKind
from runners.request import SpeechRequest


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The block is a step of this stage."""
    began = time.monotonic()
    try:
        yield
    finally:
        stepped(name, began, time.monotonic(), (None,))


def stepped(name: str, began: float, ended: float, requests: Sequence[Any]) -> None:
    """A `runners.stages.OnStage`, for the current exchange."""
    if (exchange := current()) is not None and exchange.trace is not None:
        exchange.trace.step(name, began, ended, len(requests))


def traceparent() -> str:
    """For who goes on with the current exchange's trace in another process; "" where it has none."""
    exchange = current()
    return "" if exchange is None or exchange.trace is None else exchange.trace.traceparent


async def followed(
    backend: Backend, request: SpeechRequest, texts: AsyncIterator[str] | None = None
) -> AsyncGenerator[Frame, None]:
    """`backend.stream`, with the current exchange's trace, which learns how long it was queued."""
    request = replace(request, traceparent=traceparent())
    stream = backend.stream(request) if texts is None else backend.dictate(request, texts)
    async with aclosing(stream) as frames:
        async for frame in frames:
            if frame.kind is FrameKind.END and (exchange := current()) is not None and exchange.queued_s is None:
                exchange.queued_s = frame.json().get("queue_wait_s")
            yield frame
