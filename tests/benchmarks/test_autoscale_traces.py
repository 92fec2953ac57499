"""Arrivals have the shape that their name promises, and depend on the seed alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.scaling import traces
from benchmarks.scaling.traces import DAY, Lengths

FIVE = Lengths(5.0)


def between(arrivals: traces.Arrivals, low: float, high: float) -> int:
    return sum(low <= time < high for time, _ in arrivals)


def test_a_constant_trace_is_poisson() -> None:
    arrivals = traces.constant(2.0, 10_000, FIVE, seed=1)
    counts = np.histogram([time for time, _ in arrivals], bins=1000, range=(0, 10_000))[0]
    assert counts.mean() == pytest.approx(20, rel=0.03)
    assert counts.var() == pytest.approx(20, rel=0.15)  # a Poisson count varies by its mean


def test_a_day_is_busy_by_day_and_quiet_at_night() -> None:
    arrivals = traces.daily(1.0, 4 / 3600, 2 * DAY, FIVE, seed=1)
    noon = 14.5 * 3600  # between 7:00 and 22:00
    for day in (0, DAY):
        assert between(arrivals, day + noon - 1800, day + noon + 1800) == pytest.approx(3600, rel=0.1)
        assert between(arrivals, day, day + 7 * 3600) <= 50  # 28 expected
    assert arrivals == sorted(arrivals)


def test_a_burst_multiplies_the_rate_for_its_time() -> None:
    arrivals = traces.burst(0.5, 20, begins=1000, lasts=100, duration=2000, lengths=FIVE, seed=1)
    assert between(arrivals, 1000, 1100) == pytest.approx(1000, rel=0.15)
    assert between(arrivals, 0, 1000) == pytest.approx(500, rel=0.15)


def test_patchy_requests_come_one_by_one() -> None:
    arrivals = traces.patchy(600, 6000, FIVE, seed=1)
    gaps = np.diff([time for time, _ in arrivals])
    assert 9 <= len(arrivals) <= 10
    assert gaps.min() >= 600 * 0.6
    assert gaps.max() <= 600 * 1.4


def test_lengths_have_the_median_asked_for() -> None:
    lengths = FIVE.draw(np.random.default_rng(1), 10_000)
    assert np.median(lengths) == pytest.approx(5, rel=0.03)
    assert lengths.min() >= traces.SHORTEST
    assert lengths.max() <= traces.LONGEST


def test_the_seed_decides_the_trace() -> None:
    assert traces.constant(1, 100, FIVE, 1) == traces.constant(1, 100, FIVE, 1)
    assert traces.constant(1, 100, FIVE, 1) != traces.constant(1, 100, FIVE, 2)


def test_a_file_may_have_a_heading_and_any_order(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,length\n9.5,3\n1,2.5\n")
    assert traces.from_csv(path) == [(1.0, 2.5), (9.5, 3.0)]


@pytest.mark.parametrize("line", ["1,2,3", "one,2", "-1,2", "1,0", "nan,1", "1,inf"])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"0,1\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        traces.from_csv(path)
