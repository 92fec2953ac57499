"""A stream is discontinuous when, by the clock, its listener would have had silence in the middle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from api import telemetry
from api.telemetry import Recording

ROUTE = "telemetry-test"
RATE = 1000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(telemetry, "time", clock)
    return clock


@pytest.fixture
def counted() -> Callable[[], tuple[int, ...]]:
    """The growth of a counter since the test began."""
    names = ("cosyserve_streams_total", "cosyserve_discontinuous_streams_total")

    def current(name: str) -> float:
        return REGISTRY.get_sample_value(name, {"route": ROUTE}) or 0.0

    before = {name: current(name) for name in names}
    return lambda: tuple(int(current(name) - before[name]) for name in names)


def recording() -> Recording:
    made = Recording(ROUTE)
    made.started(RATE)
    return made


def test_audio_that_comes_in_time_is_continuous(clock: Clock, counted) -> None:
    stream = recording()
    clock.now += 5  # waiting for the first audio is no discontinuity
    stream.audio(1000, streamed=True)
    clock.now += 0.9
    stream.audio(1000, streamed=True)
    clock.now += 1.0  # 1.9 s after the first audio, of which there are 2 s
    stream.audio(500, streamed=True)
    clock.now += 30
    stream.finished("ok")
    assert counted() == (1, 0)


def test_a_stream_that_ran_dry_counts_once(clock: Clock, counted) -> None:
    stream = recording()
    stream.audio(1000, streamed=True)
    for _ in range(3):
        clock.now += 1.5
        stream.audio(1000, streamed=True)
    stream.finished("ok")
    stream.finished("cancelled")
    assert counted() == (1, 1)


def test_audio_ahead_covers_a_late_hop(clock: Clock, counted) -> None:
    stream = recording()
    stream.audio(1000, streamed=True)
    stream.audio(3000, streamed=True)
    clock.now += 3.5
    stream.audio(1000, streamed=True)
    stream.finished("ok")
    assert counted() == (1, 0)


@pytest.mark.parametrize("outcome", ["cancelled", "engine_error"])
@pytest.mark.parametrize(("waited", "dry"), [(0.5, 0), (1.5, 1)])
def test_who_gives_up_or_is_cut_off_ran_dry_if_all_was_played(
    clock: Clock, counted, outcome: str, waited: float, dry: int
) -> None:
    stream = recording()
    stream.audio(1000, streamed=True)
    clock.now += waited
    stream.finished(outcome)
    assert counted() == (1, dry)


def test_buffered_responses_have_no_continuity(clock: Clock, counted) -> None:
    answer = recording()
    answer.audio(1000)
    clock.now += 10
    answer.audio(1000)
    answer.finished("cancelled")
    assert counted() == (0, 0)


def test_a_request_that_fails_before_any_audio_is_no_stream(clock: Clock, counted) -> None:
    failed = recording()
    clock.now += 10
    failed.finished("engine_error")
    assert counted() == (0, 0)


def test_silence_is_as_long_as_the_listener_waited(clock: Clock) -> None:
    def silence() -> float:
        return REGISTRY.get_sample_value("cosyserve_audio_underrun_seconds_total", {"route": ROUTE}) or 0.0

    before, stream = silence(), recording()
    stream.audio(1000, streamed=True)
    clock.now += 1.5  # 0.5 s of it in silence; what comes is played from now on
    stream.audio(1000, streamed=True)
    clock.now += 0.9
    stream.audio(1000, streamed=True)
    clock.now += 1.3  # of 1.1 s that were left
    stream.finished("cancelled")
    assert silence() - before == pytest.approx(0.5 + 0.2)


def test_gaps_are_between_pieces_that_somebody_hears(clock: Clock) -> None:
    def gaps() -> tuple[float, float]:
        names = ("cosyserve_inter_chunk_gap_seconds_count", "cosyserve_inter_chunk_gap_seconds_sum")
        count, seconds = (REGISTRY.get_sample_value(name, {"route": ROUTE}) or 0.0 for name in names)
        return count, seconds

    count, seconds = gaps()
    for stream, streamed in ((recording(), True), (recording(), False)):
        for _ in range(3):
            stream.audio(1000, streamed=streamed)
            clock.now += 0.4
        stream.finished("ok")
    assert gaps() == pytest.approx((count + 2, seconds + 0.8))


@pytest.mark.parametrize("outcome", ["ok", "cancelled"])
def test_only_what_ended_well_has_a_duration(clock: Clock, outcome: str) -> None:
    def durations() -> float:
        return REGISTRY.get_sample_value("cosyserve_request_duration_seconds_count", {"route": ROUTE}) or 0.0

    def ends() -> float:
        labels = {"route": ROUTE, "mode": "zero_shot", "outcome": outcome}
        return REGISTRY.get_sample_value("cosyserve_requests_total", labels) or 0.0

    before, counted = durations(), ends()
    answer = Recording(ROUTE)
    answer.started(RATE, "zero_shot")
    answer.audio(1000)
    answer.finished(outcome)
    answer.finished("engine_error")
    assert (durations() - before, ends() - counted) == ((1, 1) if outcome == "ok" else (0, 1))


def test_active_streams_go_back_to_zero(clock: Clock) -> None:
    def active() -> float | None:
        return REGISTRY.get_sample_value("cosyserve_active_streams", {"route": ROUTE})

    before = active() or 0.0
    streams = [recording() for _ in range(3)]
    assert active() == before + 3
    for stream in streams:
        stream.finished("cancelled")
        stream.finished("ok")
    assert active() == before


def test_what_is_made_ahead_is_heard_from_its_turn_on(clock: Clock, counted) -> None:
    ahead = Recording(ROUTE, ahead=True)
    ahead.started(RATE)
    ahead.audio(1000, streamed=True)
    clock.now += 30
    assert counted() == (0, 0)
    ahead.turn()
    assert counted() == (1, 0)
    clock.now += 0.9
    ahead.audio(1000, streamed=True)
    assert ahead.seconds_so_far == pytest.approx(0.9)  # the wait is no work
    clock.now += 1.5
    ahead.audio(1000, streamed=True)
    assert counted() == (1, 1)


def test_who_never_had_a_turn_was_never_heard(clock: Clock, counted) -> None:
    ahead = Recording(ROUTE, ahead=True)
    ahead.audio(1000, streamed=True)
    clock.now += 30
    ahead.finished("cancelled")
    assert counted() == (0, 0)
