"""What the engine does next: first audio first, then who would run dry, and batches that time allows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from runners import memory
from runners.memory import MemoryBudget, budget_bytes
from runners.pace import Pace
from runners.policy import AHEAD, BUFFERED, FIRST, PRESSING, Policy, Shares, Urgency, start_order

POLICY = Policy(low_water_seconds=0.5, patience_seconds=2.0, batch_seconds=0.3)
NOW = 1000.0
HOP = 50  # frames


def utterance(
    *, stream=True, sent=0, ahead=0.0, submitted=0.0, waited=0.0, index=0, dry=None, decoded=0.0, tenant="", live=False
):
    job = SimpleNamespace(
        request=SimpleNamespace(stream=stream, tenant=tenant),
        waits=sent == 0,
        live=live,
        samples_sent=sent,
        seconds_ahead=ahead,
        submitted_at=submitted,
        runs_dry_at=dry,
        decoded_at=decoded,
    )
    return SimpleNamespace(job=job, ready_at=NOW - waited, index=index)


def pace(seconds_per_frame: float) -> Pace:
    measured = Pace()
    measured.took(100, 100 * seconds_per_frame)
    return measured


def shares(*ones) -> Shares:
    return Shares([one.job for one in ones])


def kind(one, *others, per_frame=0.001) -> int:
    return POLICY.urgency(one, HOP, NOW, pace(per_frame), shares(one, *others)).kind


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (utterance(), FIRST),
        (utterance(sent=1, ahead=0.4), PRESSING),
        (utterance(sent=1, ahead=2.0), AHEAD),
        (utterance(stream=False), BUFFERED),
        (utterance(stream=False, sent=1), BUFFERED),
    ],
)
def test_who_waits_for_what(one, expected: int) -> None:
    assert kind(one) == expected


def test_a_listener_is_at_risk_by_the_time_that_the_audio_takes() -> None:
    one = utterance(sent=1, ahead=2.0)
    assert kind(one, per_frame=0.001) == AHEAD
    assert kind(one, per_frame=0.04) == PRESSING  # two seconds for the hop: all that is ahead


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_waits_longer_than_its_patience(stream: bool) -> None:
    assert kind(utterance(stream=stream, sent=1, ahead=100.0, waited=1.9)) > PRESSING
    assert kind(utterance(stream=stream, sent=1, ahead=100.0, waited=2.1)) == PRESSING


def test_the_order_among_equals() -> None:
    def order(*ones):
        inside = shares(*ones)
        return sorted(range(len(ones)), key=lambda i: POLICY.urgency(ones[i], HOP, NOW, pace(0.001), inside))

    assert order(utterance(submitted=2.0), utterance(submitted=1.0)) == [1, 0]
    few, many = utterance(submitted=9.0, tenant="few"), [utterance(tenant="many")] * 2
    assert order(*many, few) == [2, 0, 1]
    assert order(utterance(sent=1, ahead=0.3), utterance(sent=1, ahead=-1.0), utterance()) == [2, 1, 0]
    assert order(utterance(sent=1, ahead=9.0), utterance(sent=1, ahead=3.0), utterance(stream=False)) == [1, 0, 2]


def test_a_batch_is_what_time_allows_and_never_mixes_what_can_wait() -> None:
    first, first_too, pressing = Urgency(FIRST, (1.0,)), Urgency(FIRST, (2.0,)), Urgency(PRESSING, (-1.0,))
    ahead, buffered = Urgency(AHEAD, (3.0,)), Urgency(BUFFERED, (0.0,))
    ready = [(buffered, 400), (ahead, 100), (pressing, 100), (first_too, 50), (first, 50)]
    assert POLICY.batch(ready, pace(0.001)) == [4, 3, 2]
    assert POLICY.batch(ready, pace(0.0029)) == [4, 3]  # 0.29 s
    assert POLICY.batch(ready, pace(0.1)) == [4]  # one alone may take longer
    assert POLICY.batch(ready[:2], pace(0.0001)) == [1, 0]
    assert POLICY.batch(ready, Pace()) == [4, 3, 2]  # before anything was measured
    alone = replace(POLICY, batch_seconds=0.0)
    assert alone.batch(ready, pace(0.001)) == alone.batch(ready, Pace()) == [4]


def test_utterances_begin_in_the_order_in_which_they_are_wanted() -> None:
    """New texts before the next part of a long one, until its listener runs dry or it has waited its time."""
    new = utterance(submitted=50.0)
    ahead = utterance(index=3, submitted=1.0, dry=59.0)
    dry = utterance(index=1, submitted=1.0, dry=45.0)
    waited = utterance(stream=False, index=2, submitted=1.0, decoded=47.0)
    whole = utterance(stream=False, index=2, submitted=1.0, decoded=49.0)
    silent = utterance(index=1, submitted=1.0, decoded=60.0)
    ones = [silent, ahead, whole, new, waited, dry]
    everybody = shares(*ones)
    assert sorted(ones, key=lambda one: start_order(one, 2.0, everybody)) == [dry, waited, new, whole, ahead, silent]


def test_the_tenant_that_has_fewest_under_way_begins_next() -> None:
    live = [utterance(tenant="one", sent=1, live=True), utterance(tenant="two", sent=1, live=True)]
    waiting = [utterance(tenant="one", submitted=1.0), utterance(tenant="two", submitted=2.0)]
    new = utterance(tenant="three", submitted=3.0)
    everybody = shares(*live, *live[:1], *waiting, new)
    assert sorted([*waiting, new], key=lambda one: start_order(one, 2.0, everybody)) == [new, *reversed(waiting)]


@pytest.mark.parametrize(
    ("listeners", "others_inside", "expected"),
    [(3, 1, AHEAD), (2, 1, PRESSING), (5, 4, PRESSING), (6, 4, AHEAD)],
)
def test_what_presses_for_one_with_many_waits_for_the_first_audio_of_one_with_few(
    listeners: int, others_inside: int, expected: int
) -> None:
    pressing = [utterance(sent=1, ahead=0.1, tenant="many") for _ in range(listeners)]
    waiting = [utterance(tenant="few", sent=int(n > 0)) for n in range(others_inside)]
    assert kind(pressing[0], *pressing[1:], *waiting) == expected
    late = utterance(sent=1, ahead=-2.0, tenant="many")
    assert kind(late, *pressing, *waiting) == PRESSING  # not for ever
    waiting[0].job.waits = False
    assert kind(pressing[0], *pressing[1:], *waiting) == PRESSING


def test_the_pace_follows_what_synthesis_takes() -> None:
    measured = Pace()
    assert measured.seconds(100) == 0
    measured.took(0, 5.0)
    assert measured.seconds(100) == 0
    measured.took(100, 1.0)
    assert measured.seconds(50) == pytest.approx(0.5)
    for _ in range(30):
        measured.took(100, 2.0)
    assert measured.seconds(100) == pytest.approx(2.0, rel=0.01)


def test_memory_is_given_out_until_there_is_none() -> None:
    budget = MemoryBudget(100)
    assert budget.reserve(70)
    assert not budget.reserve(40)
    assert budget.reserve(30)
    budget.release(70)
    assert budget.reserve(40)
    budget.release(30)
    budget.release(40)
    assert budget.reserve(1000)  # alone it would wait for ever
    assert MemoryBudget(None).reserve(1 << 60)


def test_the_budget_is_what_container_and_machine_leave(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    assert budget_bytes(cpu) is None  # neither tells
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable:   8000000 kB\n")
    assert budget_bytes(cpu) == int(0.6 * 8_192_000_000)
    (tmp_path / "memory.max").write_text("max\n")
    assert budget_bytes(cpu) == int(0.6 * 8_192_000_000)
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.stat").write_text("anon 1000000000\nfile 2000000000\n")
    assert budget_bytes(cpu) == int(0.6 * 3_000_000_000)
    (tmp_path / "memory.stat").write_text("anon 5000000000\nfile 0\n")
    assert budget_bytes(cpu) == 0
