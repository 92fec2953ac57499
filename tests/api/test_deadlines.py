"""Work that has an end in time, and a cancellation that nothing swallows."""

from __future__ import annotations

import asyncio

import pytest

from api.deadlines import done_within
from api.open_sessions import OpenSessions


async def test_a_cancellation_that_comes_with_the_result_is_not_lost() -> None:
    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(done_within(10, result))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    result.set_result(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_is_not_done_in_time_has_ended(cancelled: bool) -> None:
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended = True

    waiting = asyncio.create_task(done_within(5 if cancelled else 0.01, work()))
    await asyncio.sleep(0.02)
    waiting.cancel() if cancelled else None
    with pytest.raises(asyncio.CancelledError if cancelled else asyncio.TimeoutError):
        await waiting
    assert ended
    assert await done_within(None, asyncio.sleep(0, "result")) == "result"


async def test_the_end_waits_for_sessions_but_not_for_ever() -> None:
    sessions = OpenSessions()
    with sessions.one():
        waiting = asyncio.create_task(sessions.ended(10))
        await asyncio.wait_for(sessions.ended(0.01), 5)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
