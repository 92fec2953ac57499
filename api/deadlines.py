"""Work that has an end in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def done_within(seconds: float | None, work: Awaitable[Result]) -> Result:
    """What `work` returns. Raises asyncio.TimeoutError after `seconds`; then, or cancelled itself, it has ended `work`.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes together with the result.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
    except BaseException:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at, so that nobody misses it
        raise
    return task.result()
