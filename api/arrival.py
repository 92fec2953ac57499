"""Requests that never finish arriving: how long they are waited for, before SIGTERM and from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from api.errors import ApiError

GOODBYE_SECONDS = 1.0
"""For what is on its way when the drain begins."""

Item = TypeVar("Item")
Whole = TypeVar("Whole")


async def following(source: AsyncIterator[Item], seconds: float | None) -> Item | None:
    """The next of `source`, None at its end. Raises ApiError upload_stalled if it takes longer than `seconds`."""
    try:
        return await asyncio.wait_for(_next(source), seconds)
    except asyncio.TimeoutError:
        raise ApiError(408, "upload_stalled", f"Nothing more arrived for {seconds:g} s.") from None


async def before_drain(arriving: Coroutine[Any, Any, Whole], draining: asyncio.Event) -> Whole:
    """What `arriving` returns. Raises ApiError draining if `draining` is set and it takes longer than a goodbye."""
    task = asyncio.ensure_future(arriving)
    drained = asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait({task, drained}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=GOODBYE_SECONDS)
        if not task.done():
            raise draining_error()
        return task.result()
    finally:
        task.cancel()
        drained.cancel()


def draining_error() -> ApiError:
    return ApiError(503, "draining", "The server is stopping. Try again shortly.")


async def _next(source: AsyncIterator[Item]) -> Item | None:
    return await anext(source, None)
