"""Arrivals: when requests come and how long their speech is."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DAY = 86_400.0
MORNING, EVENING = 7 * 3600.0, 22 * 3600.0  # the daily curve's working day
LENGTH_SPREAD = 0.6  # of the logarithm
SHORTEST, LONGEST = 0.5, 60.0

Arrivals = list[tuple[float, float]]


@dataclass(frozen=True)
class Lengths:
    """Lengths of speech, log-normal around `median` seconds, between half a second and a minute."""

    median: float

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`[count]` seconds."""
        lengths = self.median * np.exp(LENGTH_SPREAD * rng.standard_normal(count))
        return np.clip(lengths, SHORTEST, LONGEST)


def constant(rate: float, duration: float, lengths: Lengths, seed: int) -> Arrivals:
    """A Poisson process of `rate` requests per second."""
    return _poisson(lambda times: np.full_like(times, rate), rate, duration, lengths, seed)


def daily(peak: float, night: float, duration: float, lengths: Lengths, seed: int) -> Arrivals:
    """A Poisson process whose rate (per second) rises in the morning to `peak` and falls to `night` for the night."""

    def rate(times: np.ndarray) -> np.ndarray:
        share = np.clip((times % DAY - MORNING) / (EVENING - MORNING), 0, 1)
        return night + (peak - night) * np.sin(math.pi * share) ** 2

    return _poisson(rate, max(peak, night), duration, lengths, seed)


def burst(
    base: float, factor: float, begins: float, lasts: float, duration: float, lengths: Lengths, seed: int
) -> Arrivals:
    """A flash crowd: `factor` times the `base` rate from `begins` on for `lasts` seconds."""

    def rate(times: np.ndarray) -> np.ndarray:
        return np.where((times >= begins) & (times < begins + lasts), base * factor, base)

    return _poisson(rate, base * max(1.0, factor), duration, lengths, seed)


def patchy(every: float, duration: float, lengths: Lengths, seed: int) -> Arrivals:
    """Single requests, `every` so many seconds, each up to a fifth early or late."""
    rng = np.random.default_rng(seed)
    times = np.arange(every, duration, every)
    times = np.sort(times + every * rng.uniform(-0.2, 0.2, len(times)))
    times = times[times < duration]
    return _with_lengths(times, lengths, rng)


def from_csv(path: Path) -> Arrivals:
    """Lines `seconds,length` in any order, after a heading or none. Raises OSError, ValueError."""
    arrivals = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            try:
                time, length = (float(value) for value in row)
            except ValueError:
                if number == 1:
                    continue
                raise ValueError(f"{path}, line {number}: expected seconds,length, got {','.join(row)!r}") from None
            if not (time >= 0 and length > 0 and math.isfinite(time + length)):
                raise ValueError(f"{path}, line {number}: seconds must be at least 0, the length above 0")
            arrivals.append((time, length))
    return sorted(arrivals)


def _poisson(
    rate: Callable[[np.ndarray], np.ndarray], most: float, duration: float, lengths: Lengths, seed: int
) -> Arrivals:
    """By thinning: arrivals at the highest rate, of which each stays with the share of the rate at its time."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, duration, rng.poisson(most * duration)))
    times = times[rng.uniform(0, most, len(times)) < rate(times)]
    return _with_lengths(times, lengths, rng)


def _with_lengths(times: np.ndarray, lengths: Lengths, rng: np.random.Generator) -> Arrivals:
    return list(zip(times.tolist(), lengths.draw(rng, len(times)).tolist(), strict=True))
