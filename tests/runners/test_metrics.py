"""What the engine reports of its load follows what it does, and rests when it rests."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from models.voice_prefixes import VoicePrefixes
from runners import gauges
from tests.runners.engine import engine, greedy, speak, tiny_model, until, zero_shot_request


def value(gauge) -> float:
    (metric,) = gauge.collect()
    (sample,) = metric.samples
    return sample.value


def value_of(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_the_queue_is_who_has_no_audio_yet() -> None:
    async with engine(2, greedy, max_live=1) as scheduler:
        jobs = [await scheduler.submit(zero_shot_request(2, seed=seed)) for seed in range(3)]
        await until(lambda: value(gauges.QUEUE) == 3)
        for waiting in (2, 1, 0):
            await until(lambda waiting=waiting: value(gauges.QUEUE) <= waiting)
            assert sum(job.samples_sent == 0 for job in jobs) <= waiting
        await until(lambda: not scheduler.jobs)
    assert value(gauges.QUEUE) == value(gauges.REQUESTS) == 0


async def test_cancelled_and_failed_requests_leave_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(2, greedy) as scheduler:

        def fail(*arguments, **options):
            raise MemoryError("injected")

        monkeypatch.setattr(scheduler.model.lm, "extend", fail)
        _, end = await speak(scheduler, zero_shot_request(2))
        assert end["code"] == "engine_error"
        await until(lambda: value(gauges.QUEUE) == 0)
        monkeypatch.undo()
        job = await scheduler.submit(zero_shot_request(2))
        await until(lambda: value(gauges.QUEUE) == 1)
        scheduler.cancel(job)
        await until(lambda: value(gauges.QUEUE) == 0)


async def test_headroom_is_shared_by_the_requests_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(2, greedy) as scheduler:
        jobs = [await scheduler.submit(zero_shot_request(2, seed=seed)) for seed in range(4)]
        seen: list[tuple[float, float, int]] = []
        monkeypatch.setattr(
            gauges.HEADROOM,
            "set",
            lambda headroom: seen.append((headroom, scheduler._audio_rate.per_second, len(scheduler.jobs))),
        )
        await until(lambda: not scheduler.jobs, timeout=120)
    assert all(job.finished for job in jobs)
    assert {inside for _, _, inside in seen} == {1, 2, 3, 4}
    for headroom, rate, inside in seen:
        assert headroom == pytest.approx(rate / inside)
        assert headroom > 0


async def test_idle_time_leaves_the_headroom_alone() -> None:
    async with engine(2, greedy) as scheduler:
        await speak(scheduler, zero_shot_request(2))
        before = value(gauges.HEADROOM)
        await asyncio.sleep(0.3)
        assert value(gauges.HEADROOM) == before > 0


def test_a_steady_rate_is_found_whatever_the_pieces() -> None:
    for pieces in ([0.1] * 50, [3.0] * 5, [0.001, 5.0] * 10):
        rate = gauges.AudioRate()
        for work in pieces:
            rate.worked(work)
            rate.made(2.5 * work)
        assert rate.per_second == pytest.approx(2.5)


def test_a_new_rate_takes_over_within_the_memory() -> None:
    rate = gauges.AudioRate()
    rate.worked(1)
    rate.made(4)
    for _ in range(10):  # 10 s of work, one memory: 1/e of the old rate is left
        rate.worked(1)
        rate.made(1)
    assert rate.per_second == pytest.approx(1 + 3 * 0.367879, rel=1e-3)


def test_hops_that_come_together_are_not_a_higher_rate() -> None:
    """Four streams decoded together for 0.96 s, then their hops of 0.01 s each: 4 audio seconds per second."""
    rate = gauges.AudioRate()
    for _ in range(200):
        for work in (0.97, 0.01, 0.01, 0.01):
            rate.worked(work)
            rate.made(1.0)
    assert rate.per_second == pytest.approx(4, rel=0.1)


def test_audio_without_work_or_of_no_length_changes_nothing() -> None:
    rate = gauges.AudioRate()
    rate.made(1.0)
    assert rate.per_second == 0
    rate.worked(1.0)
    rate.made(0.0)
    assert rate.per_second == 0
    rate.made(3.0)
    assert rate.per_second == 3


async def test_a_stage_is_told_whom_it_worked_for() -> None:
    steps: list[tuple[str, float, float, list]] = []
    async with engine(2, greedy) as scheduler:
        scheduler.stages.listeners.append(
            lambda stage, began, ended, jobs: steps.append((stage, began, ended, list(jobs)))
        )
        jobs = [await scheduler.submit(zero_shot_request(2, seed=seed)) for seed in range(2)]
        before = scheduler.decoder.steps
        await until(lambda: not scheduler.jobs, timeout=60)
        decoded = scheduler.decoder.steps - before
    assert {stage for stage, *_ in steps} == {"prefill", "decode", "flow", "vocoder"}
    assert all(began <= ended for _, began, ended, _ in steps)
    assert [began for _, began, *_ in steps] == sorted(began for _, began, *_ in steps)
    assert sum(stage == "decode" for stage, *_ in steps) == decoded
    assert [who for stage, *_, who in steps if stage == "prefill"] == [[jobs[0]], [jobs[1]]]
    assert any(len(who) == 2 for stage, *_, who in steps if stage == "decode")
    for job in jobs:
        assert sum(job in who for stage, *_, who in steps if stage == "flow") >= 2  # hop by hop


async def test_memory_is_told_while_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    most = dict.fromkeys((gauges.KV_CACHE_BYTES, gauges.PREFIX_CACHE_BYTES), 0.0)
    async with engine(2, greedy) as scheduler:
        for gauge in most:
            tell = gauge.set

            def noted(size: float, gauge=gauge, tell=tell) -> None:
                most[gauge] = max(most[gauge], size)
                tell(size)

            monkeypatch.setattr(gauge, "set", noted)
        waits = value_of("cosyserve_queue_wait_seconds_count")
        await speak(scheduler, zero_shot_request(2))
        await until(lambda: value(gauges.PREFIX_CACHE_BYTES) == 0)
        assert value_of("cosyserve_queue_wait_seconds_count") == waits + 1
    assert all(size > 1000 for size in most.values())
    assert most[gauges.KV_CACHE_BYTES] < most[gauges.PREFIX_CACHE_BYTES]
    assert value(gauges.KV_CACHE_BYTES) == 0


async def test_a_prompt_is_read_by_the_first_who_speaks_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hits, misses = (f"cosyserve_voice_cache_{what}_total" for what in ("hits", "misses"))
    voices = VoicePrefixes(1 << 30)
    monkeypatch.setattr(tiny_model(2).token2wav, "voices", voices)
    async with engine(2, greedy) as scheduler:
        found, missed = value_of(hits, cache="prompt"), value_of(misses, cache="prompt")
        for _ in range(3):
            await speak(scheduler, zero_shot_request(2))
        assert (value_of(hits, cache="prompt") - found, value_of(misses, cache="prompt") - missed) == (2, 1)
        await until(lambda: value_of("cosyserve_voice_cache_bytes", cache="prompt") == voices.bytes > 0)


async def test_values_that_are_not_finite_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(2, greedy) as scheduler:

        def broken(*arguments, **options):
            raise FloatingPointError

        before = value_of("cosyserve_nonfinite_audio_total")
        monkeypatch.setattr(scheduler.model.lm, "extend", broken)
        _, end = await speak(scheduler, zero_shot_request(2))
        assert end["code"] == "nonfinite_audio"
        assert value_of("cosyserve_nonfinite_audio_total") == before + 1
