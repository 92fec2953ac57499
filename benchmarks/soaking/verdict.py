"""Whether a soak was passed: what is flat, what is back to zero, and what is the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FLAT = 0.02
"""The greatest growth of memory, threads and open files from the warm-up to the end, by the line through all rounds. A
run of a few minutes ends before the allocators have seen everything, and needs more."""
WARM_UP = 1 / 3
"""Of the rounds; then the pools of threads are full and the allocators have seen the largest answers."""
IDLE_SECONDS = 20.0
"""Within which all gauges of load must be zero when the last client has gone: what is kept by mistake is kept for
longer, and a machine that has other work to do is slow for less."""
IDLE = (
    "cosyserve_active_streams",
    "cosyserve_engine_requests",
    "cosyserve_engine_live_utterances",
    "cosyserve_queue_depth",
    "cosyserve_kv_cache_bytes",
    "cosyserve_prefix_cache_bytes",
)


@dataclass(frozen=True)
class Rest:
    """The service at rest after a round. `at`: seconds since the first round began; `idle_after`: seconds until it
    was at rest, None if it never was; `values`: by name, what is to stay flat; `requests`: so far."""

    at: float
    requests: int
    idle_after: float | None
    values: Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """A value after the warm-up: first and last of the line through it. `limit`: of its growth; `step`: what it may
    grow by anyhow."""

    name: str
    first: float
    last: float
    mean: float
    least: float
    most: float
    step: float
    limit: float = FLAT

    @property
    def growth(self) -> float:
        """From the first to the last, of the mean; 0.02 is 2 %."""
        return (self.last - self.first) / self.mean if self.mean else 0.0

    @property
    def flat(self) -> bool:
        """Less than it was is no fault."""
        return self.growth <= self.limit or self.last - self.first < self.step


def lines(rests: Sequence[Rest], steps: Mapping[str, float], limit: float = FLAT) -> list[Line]:
    """`steps`: by name, what a value may grow by anyhow."""
    kept = rests[int(len(rests) * WARM_UP) :]
    at = np.array([rest.at for rest in kept])
    found = []
    for name, step in steps.items():
        values = np.array([rest.values[name] for rest in kept], float)
        slope, start = np.polyfit(at, values, 1) if len(kept) > 1 else (0.0, values[0])
        first, last = (float(end) for end in start + slope * at[[0, -1]])
        spread = float(values.mean()), float(values.min()), float(values.max())
        found.append(Line(name, first, last, *spread, step, limit))
    return found


def never_at_rest(rests: Sequence[Rest]) -> list[str]:
    return [
        f"{IDLE_SECONDS:g} s after the round that ended at {rest.at:.0f} s the service was not at rest"
        for rest in rests
        if rest.idle_after is None
    ]
