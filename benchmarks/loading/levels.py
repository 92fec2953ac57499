"""The loads a server is put under, one after the other: closed loop (clients at once), open loop (requests/s)."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from benchmarks.loading.client import Speech, Target, speak

# A client that has been refused comes back after this, as a person would; it also keeps a dead server's failures few.
PAUSE_AFTER_FAILURE = 0.2
WATCH_SECONDS = 0.02
TELL_SECONDS = 1.0


@dataclass(frozen=True)
class Closed:
    """So many clients, each of which asks again as soon as it has heard the end."""

    clients: int

    def __str__(self) -> str:
        return f"concurrency {self.clients}"


@dataclass(frozen=True)
class Open:
    """Requests come at `rate` per second on average, whatever became of those before them."""

    rate: float

    def __str__(self) -> str:
        return f"rate {self.rate:g}/s"


Load = Closed | Open


@dataclass(frozen=True)
class Extent:
    """How long a level goes on: until so many requests have been sent, or no longer than so many seconds. What has been
    sent is waited for."""

    requests: int | None = None
    seconds: float | None = None

    def holds(self, number: int, elapsed: float) -> bool:
        """Whether request `number`, from 0, is sent `elapsed` seconds after the beginning."""
        return (self.requests is None or number < self.requests) and (self.seconds is None or elapsed < self.seconds)


@dataclass
class Level:
    """A load and what has come of it so far. `lags`: seconds by which the client itself was late, sampled."""

    load: Load
    speeches: list[Speech] = field(default_factory=list)
    in_flight: int = 0
    lags: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> int:
        return sum(speech.failure is not None for speech in self.speeches)

    def __str__(self) -> str:
        elapsed = time.monotonic() - self.began
        done = f"{len(self.speeches)} done, {self.failed} failed, {self.in_flight} in flight"
        return f"{self.load}: {done}, {elapsed:.0f} s"


@dataclass(frozen=True)
class Plan:
    """What is measured. Request n of every level speaks text n, and around again."""

    target: Target
    texts: Sequence[str]
    loads: Sequence[Load]
    extent: Extent
    warm_up: int = 1
    seed: int = 0


def arrivals(rate: float, extent: Extent, seed: int) -> Iterator[float]:
    """Seconds at which a Poisson process of `rate` per second has its events. The same seed gives the same ones, and at
    another rate the same pattern, stretched."""
    generator = random.Random(seed)
    at = 0.0
    for number in itertools.count():
        at += generator.expovariate(1.0) / rate
        if not extent.holds(number, at):
            return
        yield at


async def run(plan: Plan, levels: list[Level], tell: Callable[[Level, bool], None]) -> None:
    """Go through the plan. `levels` grows as it goes, so that an interruption loses nothing but what is in flight.

    `tell` hears of the level about once a second, and once more, with True, at its end. Stops after a level in which no
    request succeeded. The warm-up is not in `levels`.
    """
    async with plan.target.session() as session:
        for _ in range(plan.warm_up):
            await speak(session, plan.target, plan.texts[0])
        for load in plan.loads:
            level = Level(load)
            levels.append(level)
            telling = asyncio.create_task(_tell(level, tell))
            watching = asyncio.create_task(_watch(level))
            try:
                await _Asking(session, plan, level).all()
            finally:
                telling.cancel()
                watching.cancel()
            tell(level, True)
            if level.failed == len(level.speeches):
                return


async def _tell(level: Level, tell: Callable[[Level, bool], None]) -> None:
    while True:
        await asyncio.sleep(TELL_SECONDS)
        tell(level, False)


async def _watch(level: Level) -> None:
    """How late this process gets its turn: what it adds to every time that it measures."""
    while True:
        due = time.monotonic() + WATCH_SECONDS
        await asyncio.sleep(WATCH_SECONDS)
        level.lags.append(time.monotonic() - due)


class _Asking:
    """The requests of one level."""

    def __init__(self, session: aiohttp.ClientSession, plan: Plan, level: Level) -> None:
        self._session, self._plan, self._level = session, plan, level
        self._numbers = itertools.count()

    async def all(self) -> None:
        load = self._level.load
        if isinstance(load, Closed):
            await asyncio.gather(*(self._client() for _ in range(load.clients)))
        else:
            await self._come(load.rate)

    async def _client(self) -> None:
        while self._plan.extent.holds(number := next(self._numbers), time.monotonic() - self._level.began):
            speech = await self._ask(number, None)
            if speech.failure is not None:
                await asyncio.sleep(PAUSE_AFTER_FAILURE)

    async def _come(self, rate: float) -> None:
        asked: list[asyncio.Task[Speech]] = []
        try:
            for number, at in enumerate(arrivals(rate, self._plan.extent, self._plan.seed)):
                due = self._level.began + at
                await asyncio.sleep(due - time.monotonic())
                asked.append(asyncio.create_task(self._ask(number, due)))
            await asyncio.gather(*asked)
        finally:
            for task in asked:
                task.cancel()

    async def _ask(self, number: int, due: float | None) -> Speech:
        texts = self._plan.texts
        self._level.in_flight += 1
        speech = await speak(self._session, self._plan.target, texts[number % len(texts)], due)
        self._level.in_flight -= 1  # not when cancelled: then it was never finished
        self._level.speeches.append(speech)
        return speech
