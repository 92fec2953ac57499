"""The engine on a device under the loads that its targets are set for: a voice of 5 seconds, known before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.loading.figures import Figures
from benchmarks.loading.levels import Closed
from benchmarks.measure.device_checks import endless
from benchmarks.measure.engine_load import run_load, speak
from benchmarks.measure.speakers import fixed_request, voice
from models.cosyvoice import CosyVoice
from runners.request import SpeechRequest
from runners.scheduler import Scheduler
from runners.settings import engine_settings
from runners.warm_up import warm_up

PROMPT_SECONDS = 5


@dataclass(frozen=True)
class Mode:
    """How the engine uses the device. `graphs`: CUDA graphs of decode steps and of the flow."""

    name: str
    graphs: bool
    overlap: bool


@dataclass(frozen=True)
class Effort:
    """`tokens` that every request speaks; `alone`: requests one after another; `streams`, `many`: clients at once, who
    ask `rounds` times each."""

    tokens: int = 240
    alone: int = 20
    streams: int = 32
    many: int = 64
    rounds: int = 2


@dataclass(frozen=True)
class Target:
    """`at_least`: the figure shall not be below its target, otherwise not above."""

    mode: str
    what: str
    figure: float
    target: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.figure >= self.target if self.at_least else self.figure <= self.target


def measure(model: CosyVoice, mode: Mode, effort: Effort, tell: Callable[[Target], None]) -> None:
    """`tell` hears of each figure as soon as there is one.

    Raises RuntimeError when a request fails, FloatingPointError where the precision does not hold the model's values.
    """
    asyncio.run(_measure(model, mode, effort, tell))


async def _measure(model: CosyVoice, mode: Mode, effort: Effort, tell: Callable[[Target], None]) -> None:
    settings = replace(
        engine_settings(model),
        max_live=effort.many,
        max_requests=4 * effort.many,
        max_ttfa_seconds=None,
        cuda_graphs=mode.graphs,
        overlap=mode.overlap,
    )
    stream = replace(fixed_request(model, effort.tokens, seed=0), conditioning=voice(model, PROMPT_SECONDS))
    few, many = effort.streams, effort.many
    scheduler = Scheduler(model, settings, endless(model))
    scheduler.start()
    try:
        await warm_up(scheduler)
        await speak(scheduler, stream)  # the voice is known from here on
        alone = await _load(scheduler, stream, 1, effort.alone)
        assert alone.ttfa_s is not None
        tell(Target(mode.name, "TTFA P50, 1 stream (s)", alone.ttfa_s.p50, 0.12, at_least=False))
        busy = await _load(scheduler, stream, few, effort.rounds * few)
        assert busy.ttfa_s is not None
        tell(Target(mode.name, f"TTFA P95, {few} streams (s)", busy.ttfa_s.p95, 0.4, at_least=False))
        crowd = await _load(scheduler, stream, many, effort.rounds * many)
        assert crowd.continuity_at_once is not None
        tell(Target(mode.name, f"continuity, {many} streams", crowd.continuity_at_once, 0.99, at_least=True))
        whole = await _load(scheduler, replace(stream, stream=False), many, effort.rounds * many)
        tell(Target(mode.name, f"audio-s/s, {many} whole", whole.audio_s_per_s, 60.0, at_least=True))
    finally:
        await scheduler.close()


async def _load(scheduler: Scheduler, request: SpeechRequest, clients: int, count: int) -> Figures:
    requests = [replace(request, seed=seed) for seed in range(count)]
    return await run_load(scheduler, requests, Closed(clients), count)
