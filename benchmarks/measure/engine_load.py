"""The engine under load, in this process: closed and open loops, measured as `benchmarks/load.py` measures a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.loading.client import Arrival, Speech
from benchmarks.loading.failure import Failure
from benchmarks.loading.figures import Figures
from benchmarks.loading.levels import Closed, Extent, Level, Load, arrivals
from benchmarks.measure.stages import Stage, watch
from models.cosyvoice import CosyVoice
from runners.frames import FrameKind
from runners.request import RequestError, SpeechRequest
from runners.scheduler import Scheduler
from runners.settings import EngineSettings


@dataclass(frozen=True)
class LoadFigures:
    """One load, and what the model's stages took meanwhile."""

    figures: Figures
    stages: tuple[Stage, ...]


def measure_load(
    model: CosyVoice, settings: EngineSettings, requests: Sequence[SpeechRequest], load: Load, count: int
) -> LoadFigures:
    """`count` requests, these in turn, on an engine of their own, which has spoken once before.

    Raises RuntimeError when a request fails: what it left undone would be counted as speed.
    """
    return asyncio.run(_measure(model, settings, requests, load, count))


async def _measure(
    model: CosyVoice, settings: EngineSettings, requests: Sequence[SpeechRequest], load: Load, count: int
) -> LoadFigures:
    scheduler = Scheduler(model, settings)
    scheduler.start()
    try:
        await speak(scheduler, requests[0])
        with watch(model) as stopwatch:
            figures = await run_load(scheduler, requests, load, count)
        return LoadFigures(figures, stopwatch.stages())
    finally:
        await scheduler.close()


async def run_load(scheduler: Scheduler, requests: Sequence[SpeechRequest], load: Load, count: int) -> Figures:
    """`count` requests, these in turn, on an engine that runs. Raises RuntimeError when one fails."""
    level = Level(load)
    await _ask(scheduler, requests, level, count)
    for speech in level.speeches:
        if speech.failure is not None:
            raise RuntimeError(f"{load}: {speech.failure.kind}: {speech.failure.message}")
    return Figures.of(level)


async def _ask(scheduler: Scheduler, requests: Sequence[SpeechRequest], level: Level, count: int) -> None:
    numbers = iter(range(count))

    async def one(number: int, due: float | None = None) -> None:
        level.speeches.append(await speak(scheduler, requests[number % len(requests)], due))

    async def client() -> None:
        for number in numbers:
            await one(number)

    if isinstance(level.load, Closed):
        await asyncio.gather(*(client() for _ in range(level.load.clients)))
        return
    coming = []
    for number, at in enumerate(arrivals(level.load.rate, Extent(requests=count), seed=0)):
        due = level.began + at
        await asyncio.sleep(due - time.monotonic())
        coming.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*coming)


async def speak(scheduler: Scheduler, request: SpeechRequest, due: float | None = None) -> Speech:
    """One request to its end. Times count from `due` (time.monotonic's), None: from now."""
    asked = time.monotonic() if due is None else due
    heard: list[Arrival] = []
    failure = None
    try:
        job = await scheduler.submit(request)
        async for frame in job.frames():
            if frame.kind is FrameKind.AUDIO:
                heard.append(Arrival(time.monotonic() - asked, len(frame.payload) / 4 / job.sample_rate))
            elif frame.kind is FrameKind.ERROR:
                failure = Failure(frame.json()["code"], frame.json()["message"])
    except RequestError as error:
        failure = Failure(error.code, error.message)
    return Speech(asked, time.monotonic(), tuple(heard), failure)
