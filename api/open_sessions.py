"""The WebSocket sessions of this process, so that its end can wait for theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from api.deadlines import done_within


class OpenSessions:
    """How many there are."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()

    async def ended(self, seconds: float) -> None:
        """Returns when there is no session, or after `seconds`."""
        with suppress(asyncio.TimeoutError):
            await done_within(seconds, self._none.wait())


SESSIONS = OpenSessions()
