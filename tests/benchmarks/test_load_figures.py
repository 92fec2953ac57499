"""The load generator's figures, worked out by hand; its arrivals; its texts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.loading.client import Arrival, Speech
from benchmarks.loading.failure import Failure
from benchmarks.loading.figures import FailureCount, Figures, Spread, Starvation, gaps, percentile
from benchmarks.loading.levels import Closed, Extent, Level, Open, arrivals
from benchmarks.loading.texts import TEXTS, read_texts


def heard(*pieces: tuple[float, float]) -> tuple[Arrival, ...]:
    return tuple(Arrival(at, audio) for at, audio in pieces)


@pytest.mark.parametrize(
    ("count", "percent", "rank"),
    [
        (1, 50, 1),
        (1, 99, 1),
        (2, 50, 1),
        (3, 50, 2),
        (4, 95, 4),
        (19, 95, 19),
        (20, 95, 19),
        (100, 99, 99),
        (100, 95, 95),
    ],
)
def test_a_percentile_is_the_smallest_value_that_so_many_are_not_above(count: int, percent: int, rank: int) -> None:
    ranked = [float(number) for number in range(1, count + 1)]
    found = percentile(ranked, percent)
    assert found == rank
    assert sum(value <= found for value in ranked) >= percent / 100 * count
    assert sum(value < found for value in ranked) < percent / 100 * count


def test_a_spread_is_of_unordered_values_and_none_of_none() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(mean=2.0, p50=2.0, p95=3.0, p99=3.0, max=3.0)
    assert Spread.of([]) is None


@pytest.mark.parametrize(
    ("pieces", "longest", "total"),
    [
        ([(1.0, 0.5)], 0.0, 0.0),  # whatever comes before the first audio is no starvation
        ([(1.0, 0.5), (1.5, 0.5), (2.0, 0.5)], 0.0, 0.0),  # just in time
        ([(1.0, 0.5), (1.7, 0.5), (2.1, 0.5)], 0.2, 0.2),  # 1.7 is 0.2 late; then the listener has until 2.2
        ([(1.0, 0.5), (1.7, 0.5), (2.5, 0.5)], 0.3, 0.5),
        ([(0.0, 2.0), (1.9, 0.1), (2.4, 0.1)], 0.3, 0.3),  # what is ahead carries over
        ([(0.0, 0.02), (0.04, 0.02), (0.08, 0.02), (0.12, 0.02)], 0.02, 0.06),  # a trickle at half the speed
    ],
)
def test_a_listener_starves_where_the_audio_so_far_has_been_played(pieces: list, longest: float, total: float) -> None:
    found = Starvation.of(heard(*pieces))
    assert (found.longest, found.total) == pytest.approx((longest, total))
    delayed = pieces[0][0] + found.total  # with that much patience at the beginning it would have had all in time
    played = itertools.accumulate((audio for _, audio in pieces), initial=delayed)
    assert all(at <= due + 1e-9 for (at, _), due in zip(pieces, played, strict=False))


def test_audio_that_arrives_at_once_is_one_piece() -> None:
    assert gaps(heard((1.0, 0.1), (1.001, 0.1), (1.002, 0.1), (1.5, 0.1), (1.504, 0.1))) == pytest.approx([0.498])


def test_a_level_comes_to_its_figures() -> None:
    smooth = Speech(100.0, 102.0, heard((0.5, 2.0), (1.0, 1.0), (2.0, 1.0)))
    stalled = Speech(100.0, 104.0, heard((1.0, 1.0), (2.25, 1.0)), refusals=1, rate_assumed=True)
    trickled = Speech(101.0, 105.0, heard((2.0, 0.05), (2.1, 0.05), (2.2, 0.05), (2.3, 0.05)))
    broken = Speech(102.0, 106.0, heard((0.1, 1.0)), Failure("broken", "gone"))
    refused = [Speech(103.0, 103.0, (), Failure("http_429", message), refusals=1) for message in ("full", "still full")]
    level = Level(Closed(3), [smooth, stalled, trickled, broken, *refused], in_flight=2, lags=[0.01, 0.0], began=100.0)
    figures = Figures.of(level)
    assert (figures.load, figures.value) == ("concurrency", 3)
    assert (figures.requests, figures.ok, figures.refusals, figures.unfinished) == (6, 3, 3, 2)
    assert figures.failures == (FailureCount("http_429", 2, "full"), FailureCount("broken", 1, "gone"))
    assert figures.wall_s == 6.0
    assert figures.ttfa_s == Spread.of([0.5, 1.0, 2.0])
    assert figures.gap_s is not None
    assert (figures.gap_s.p50, figures.gap_s.max) == pytest.approx((0.1, 1.25))
    assert figures.rtf == Spread.of([2 / 4, 4 / 2, 4 / 0.2])
    assert figures.audio_s_per_s == pytest.approx(6.2 / 6)
    assert figures.audio_s is not None
    assert figures.audio_s.mean == pytest.approx(6.2 / 3)
    # Four streams began: the smooth one is fine, the trickle never waits 100 ms at once, one stalled, one broke.
    assert (figures.continuity_at_once, figures.continuity_in_total) == (2 / 4, 1 / 4)
    assert figures.starved_s is not None
    assert (figures.starved_s.mean, figures.starved_s.max) == pytest.approx(((0.25 + 0.15) / 3, 0.25))
    assert figures.rate_assumed
    assert figures.client_lag_p99_s == 0.01


def test_a_level_of_nothing_has_no_figures() -> None:
    figures = Figures.of(Level(Open(0.5)))
    assert (figures.load, figures.value, figures.requests, figures.audio_s_per_s) == ("rate", 0.5, 0, 0.0)
    assert figures.ttfa_s is figures.gap_s is figures.rtf is figures.continuity_at_once is None


def test_arrivals_are_those_of_their_seed() -> None:
    minute = Extent(seconds=60)
    assert list(arrivals(2, minute, seed=1)) == list(arrivals(2, minute, seed=1))
    assert list(arrivals(2, minute, seed=1)) != list(arrivals(2, minute, seed=2))
    slow, fast = (list(arrivals(rate, Extent(requests=50), seed=1)) for rate in (1, 4))
    assert slow == pytest.approx([4 * at for at in fast])


def test_arrivals_are_a_poisson_process() -> None:
    times = list(arrivals(5, Extent(seconds=2000), seed=0))
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[-1] < 2000
    assert len(times) == pytest.approx(10_000, rel=0.04)
    mean = sum(pauses) / len(pauses)
    assert mean == pytest.approx(0.2, rel=0.04)
    assert sum((pause - mean) ** 2 for pause in pauses) / len(pauses) == pytest.approx(mean**2, rel=0.1)


def test_texts_are_of_different_lengths() -> None:
    lengths = [len(text.split()) for text in TEXTS]
    assert len(set(TEXTS)) == len(TEXTS)
    assert min(lengths) <= 3
    assert max(lengths) >= 50


def test_texts_are_read_from_lines_and_from_jsonl(tmp_path: Path) -> None:
    lines, jsonl = tmp_path / "texts.txt", tmp_path / "texts.jsonl"
    lines.write_text("One.\n\nÜber uns.\n", "utf-8")
    jsonl.write_text('{"text": "One.", "lang": "en"}\n{"text": "\\u4f60\\u597d"}\n', "utf-8")
    assert read_texts(lines) == ("One.", "Über uns.")
    assert read_texts(jsonl) == ("One.", "你好")


@pytest.mark.parametrize("content", ["", '{"txt": "One."}\n', "[1]\n", '{"text": 1}\n', "One.\n"])
def test_a_file_without_texts_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"texts\.jsonl"):
        read_texts(path)
