"""Who may come in: what a newcomer would wait is known beforehand, and one tenant does not wait for another's flood."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from runners import admission
from runners.admission import Admission
from runners.frames import Frame
from runners.gauges import AudioRate
from runners.pace import Pace
from runners.request import RequestError, SpeechRequest
from runners.settings import engine_settings
from runners.stages import DECODE, PREFILL
from tests.runners.engine import engine, greedy, speak, tiny_model, until, zero_shot_request

ONE, OTHER = "one", "other"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admission, "time", clock)
    return clock


class Line:
    """An engine that begins one stream every `seconds`, in the order of their places."""

    def __init__(self, clock: Clock, seconds: float, bound: float | None = 3.0, slots: int = 4) -> None:
        self.clock, self.seconds = clock, seconds
        self.pace = Pace()
        self.admission = Admission(bound, slots, self.pace, AudioRate())
        self.jobs: list[Any] = []

    def come(self, tenant: str = ONE, *, stream: bool = True, continues: bool = False) -> Any:
        request = SpeechRequest(stream=stream, tenant=tenant, continues=continues)
        self.admission.check(request, self.jobs)
        return self.add(request)

    def add(self, request: SpeechRequest, *, live: bool = False) -> Any:
        job = SimpleNamespace(
            request=request,
            waits=True,
            live=live,
            waits_for_slot=not live,
            text_wanted=False,
            submitted_at=self.clock.now,
            place=1,
        )
        job.place = self.admission.place(request, self.jobs)
        self.jobs.append(job)
        return job

    def hear(self, job: Any) -> None:
        self.clock.now += self.seconds
        job.waits = job.waits_for_slot = False
        self.admission.heard(job)

    def admitted(self, count: int, tenant: str = ONE, **options) -> int:
        """How many of `count` that come at once are let in."""
        return sum(self._lets_in(tenant, options) for _ in range(count))

    def _lets_in(self, tenant: str, options: dict) -> bool:
        try:
            self.come(tenant, **options)
        except RequestError:
            return False
        return True


@pytest.mark.parametrize(("seconds", "places"), [(0.125, 24), (0.5, 6), (1.5, 2), (40.0, 1)])
def test_as_many_wait_as_can_begin_in_time(clock: Clock, seconds: float, places: int) -> None:
    line = Line(clock, seconds)
    line.hear(line.come())
    assert line.admitted(50) == places  # also where each takes longer than the bound: one is always served
    waits = []
    for job in [job for job in line.jobs if job.waits]:
        line.hear(job)
        waits.append(clock.now - job.submitted_at)
    assert max(waits) <= max(3.0, seconds) + 1e-6
    assert line.admitted(50) == places


def test_a_slower_engine_is_noticed_while_they_wait(clock: Clock) -> None:
    line = Line(clock, 0.1)
    line.hear(line.come())
    line.come()
    line.come()
    clock.now += 3.5
    assert line.admitted(5) == 0


def test_an_engine_that_begins_many_at_once_lets_many_in(clock: Clock) -> None:
    line = Line(clock, 0.5)
    for _ in range(10):
        line.hear(line.come())
        line.seconds = 0.0
        for _ in range(4):
            line.come()
        for job in [job for job in line.jobs if job.waits]:
            line.hear(job)
        line.seconds = 0.5
    assert line.admitted(50) > 15


def test_the_refusal_says_when_to_come_back(clock: Clock) -> None:
    line = Line(clock, 1.0)
    line.hear(line.come())
    for _ in range(5):  # as a session's sentences come, which are not refused
        line.come(continues=True)
    with pytest.raises(RequestError, match=r"in 6\.0 s, and 3 s is the limit. Try again in 3 s") as refusal:
        line.come()
    assert (refusal.value.code, refusal.value.status, refusal.value.retry_after) == ("overloaded", 429, 3)
    assert RequestError(**Frame.error(refusal.value).json()).retry_after == 3  # on its way to the entry service
    for _ in range(3):
        line.hear(next(job for job in line.jobs if job.waits))
    line.come()


def test_without_a_bound_everybody_comes_in(clock: Clock) -> None:
    line = Line(clock, 10.0, bound=None)
    line.hear(line.come())
    assert line.admitted(50) == 50


def test_another_tenant_comes_in_while_one_floods(clock: Clock) -> None:
    line = Line(clock, 0.5)
    line.hear(line.come())
    assert line.admitted(50) == 6
    assert line.come(OTHER).place == 1
    assert line.admitted(1) == 0
    few = Line(clock, 0.5)
    few.hear(few.come())
    few.come()
    assert few.come(OTHER).place == 2  # where they have about the same, they take turns


def test_as_many_are_let_in_as_can_be_spoken_without_gaps(clock: Clock) -> None:
    line = Line(clock, 0.0, slots=16)
    line.pace.took(50, 0.1)  # a second of audio
    line.admission.on_stage(DECODE, 0.0, 0.01, ())  # a quarter of each second
    line.admission.on_stage(PREFILL, 0.0, 9.0, ())
    line.admission.left(8.0, 4)
    for _ in range(6):
        line.hear(line.come())
    with pytest.raises(RequestError, match="6 streams are as many as can be spoken without gaps") as refusal:
        line.come()
    assert (refusal.value.code, refusal.value.retry_after) == ("overloaded", 2)
    line.come(stream=False)
    line.come(continues=True)
    line.jobs = line.jobs[:6]
    assert line.admitted(50, OTHER) == 3  # its half
    assert line.admitted(50, "third") == 2
    assert line.admitted(50) == 0
    few = Line(clock, 0.0, slots=16)
    few.pace.took(50, 0.6)  # one, as measured
    assert few.admitted(50) == 2
    slow = Line(clock, 0.0, slots=16)
    slow.pace.took(50, 1.125)  # where not even one can be heard without gaps, there is nobody to protect
    assert slow.admitted(50) > 1


def test_a_moments_speed_lets_nobody_in_and_a_moments_stall_keeps_nobody_out(clock: Clock) -> None:
    """One that is let in is heard for longer than a few hops, which may be twice as fast as most."""
    line = Line(clock, 0.0, slots=16)
    for _ in range(100):
        line.pace.took(50, 0.1)
    for _ in range(3):
        line.pace.took(50, 0.05)
    assert line.admitted(50) == 8
    line.pace.took(50, 0.5)
    for _ in range(100):
        line.admission.on_stage(DECODE, 0.0, 0.002, ())
    line.admission.on_stage(DECODE, 0.0, 0.2, ())
    line.jobs.clear()
    assert line.admitted(50) == 6


def test_a_lasting_speed_is_believed(clock: Clock) -> None:
    line = Line(clock, 0.0, slots=16)
    for seconds in (0.2, 0.1):
        for _ in range(100):
            line.pace.took(50, seconds)
    assert line.admitted(50) == 7


def test_a_slow_first_hop_is_soon_forgotten(clock: Clock) -> None:
    """As that of the warm-up is, for which nobody shall be refused after it."""
    line = Line(clock, 0.0, slots=16)
    line.pace.took(50, 0.8)
    for _ in range(9):
        line.pace.took(50, 0.1)
    assert line.admitted(50) >= 4


def test_a_whole_answer_comes_in_while_a_slot_is_near(clock: Clock) -> None:
    line = Line(clock, 0.5, slots=4)
    for _ in range(4):
        line.add(SpeechRequest(stream=False, tenant=ONE), live=True)
        line.admission.left(4.0, 4)  # of four slots one is free every second
    assert line.admitted(50, stream=False) == 3
    line.jobs[0].live = False
    assert line.admitted(50, stream=False) == 1
    assert line.admitted(50, OTHER, stream=False) == 4  # as if it were alone


async def test_a_flood_of_one_tenant_does_not_keep_another_from_its_slot_and_its_audio() -> None:
    """Three slots are taken and more wait for one; the other tenant begins next, and is heard before all that wait."""
    async with engine(2, greedy, max_live=4) as scheduler:
        flood = [await scheduler.submit(zero_shot_request(2, "a " * 40, tenant=ONE, seed=n)) for n in range(8)]
        await until(lambda: len(scheduler.decoder.live) == 3)
        assert {job.live for job in flood[:3]} == {True}
        job = await scheduler.submit(zero_shot_request(2, tenant=OTHER))
        await until(lambda: job.samples_sent > 0)
        assert [one.live or bool(one.samples_sent) for one in flood[3:]] == [False] * 5
        for one in [*flood, job]:
            scheduler.cancel(one)
        await until(lambda: not scheduler.jobs)


async def test_of_few_slots_none_is_kept_for_a_tenant_that_is_not_there() -> None:
    async with engine(2, greedy, max_live=2) as scheduler:
        jobs = [await scheduler.submit(zero_shot_request(2, "a " * 40, tenant=ONE, seed=n)) for n in range(3)]
        await until(lambda: len(scheduler.decoder.live) == 2)
        for job in jobs:
            scheduler.cancel(job)
        await until(lambda: not scheduler.jobs)


async def test_the_engine_refuses_before_it_works_and_recovers() -> None:
    async with engine(2, greedy, max_ttfa_seconds=0.001) as scheduler:
        blocks, _ = await speak(scheduler, zero_shot_request(2))  # slower than the bound, and yet served
        assert blocks
        first = await scheduler.submit(zero_shot_request(2))
        before = list(scheduler.jobs)
        with pytest.raises(RequestError, match="is the limit") as refusal:
            await scheduler.submit(zero_shot_request(2))
        assert refusal.value.retry_after is not None
        assert scheduler.jobs == before
        await until(lambda: first.samples_sent > 0)
        assert (await asyncio.wait_for(speak(scheduler, zero_shot_request(2)), 30))[0]


async def test_a_reader_that_stalls_takes_no_listeners_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(2, greedy, max_ttfa_seconds=30.0, max_unread_seconds=0.5) as scheduler:
        monkeypatch.setattr(scheduler._admission, "_most_listeners", lambda: 1.0)
        stalled = [await scheduler.submit(zero_shot_request(2, "a " * 40)) for _ in range(2)]
        with pytest.raises(RequestError, match="without gaps"):
            await scheduler.submit(zero_shot_request(2))
        await until(lambda: all(job.seconds_unread > 0.5 for job in stalled))
        assert (await asyncio.wait_for(speak(scheduler, zero_shot_request(2)), 30))[0]
        assert not any(job.finished for job in stalled)


@pytest.mark.parametrize(("value", "seconds"), [("", 3.0), ("1.5", 1.5), ("none", None)])
def test_the_bound_is_a_setting(monkeypatch: pytest.MonkeyPatch, value: str, seconds: float | None) -> None:
    monkeypatch.setenv("COSYSERVE_MAX_TTFA", value)
    assert engine_settings(tiny_model(2)).max_ttfa_seconds == seconds


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_bound_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("COSYSERVE_MAX_TTFA", value)
    with pytest.raises(SystemExit, match="COSYSERVE_MAX_TTFA"):
        engine_settings(tiny_model(2))
