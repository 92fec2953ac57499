"""A revision under load: every request ends once, waits where it must, and pods come and go when the rules say."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.kpa import KpaSettings
from benchmarks.scaling.pods import Load, Outcome, ServiceTimes
from benchmarks.scaling.simulation import ColdStart, Run, Scenario, simulate

# Streams do not slow each other down: first audio after 1 s, then 4 seconds of audio per second.
EVEN = ServiceTimes("even", "test", blocks_s=(1.0,), loads=(Load(1, 1.0, 0.25), Load(2, 1.0, 0.25)))
# Two streams get half each: in real time alone, half of it together.
SHARED = ServiceTimes("shared", "test", blocks_s=(1.0,), loads=(Load(1, 1.0, 1.0), Load(2, 2.0, 2.0)))
ONE_POD = KpaSettings(container_concurrency=2, target_burst_capacity=-1, min_scale=1, max_scale=1)


def scenario(kpa: KpaSettings = ONE_POD, times: ServiceTimes = EVEN, cold: float = 10.0, **changes) -> Scenario:
    return Scenario(kpa, times, ColdStart(load=(cold, cold)), **changes)


def first_audios(run: Run) -> list[float]:
    assert all(request.first_audio is not None for request in run.requests)
    return [round(request.first_audio or 0.0, 6) for request in run.requests]


def ends(run: Run) -> list[float]:
    return [round(request.ended or 0.0, 6) for request in run.requests]


def test_a_request_alone_takes_what_the_table_says() -> None:
    run = simulate(scenario(), [(100.0, 5.0)], 200)
    assert first_audios(run) == [101.0]
    assert ends(run) == [102.0]  # 4 s beyond the first second, at a quarter of real time
    assert run.requests[0].outcome is Outcome.SERVED


def test_a_request_that_fits_into_the_first_block_ends_with_it() -> None:
    run = simulate(scenario(), [(100.0, 0.7)], 200)
    assert ends(run) == first_audios(run) == [101.0]


def test_streams_in_one_pod_slow_each_other_down() -> None:
    run = simulate(scenario(times=SHARED), [(100.0, 2.0), (101.0, 1.0)], 200)
    # The first speaks at 101, when the second comes; both run at half speed until the second has its audio at 103.
    assert first_audios(run) == [101.0, 103.0]
    assert ends(run) == [103.0, 103.0]


def test_the_hard_limit_makes_the_next_request_wait_for_a_place() -> None:
    run = simulate(scenario(), [(100.0, 5.0), (100.5, 5.0), (101.0, 5.0)], 200)
    assert first_audios(run) == [101.0, 101.5, 103.0]  # the third enters when the first ends at 102
    assert run.max_queue == 1


def test_without_a_hard_limit_nobody_waits_until_the_pod_refuses() -> None:
    free = replace(ONE_POD, container_concurrency=0)
    run = simulate(scenario(free, pod_limit=5), [(100.0, 5.0)] * 7, 200)
    outcomes = [request.outcome for request in run.requests]
    assert outcomes == [Outcome.SERVED] * 5 + [Outcome.REJECTED] * 2
    assert run.max_queue == 0


def test_the_first_request_at_zero_waits_for_the_cold_start() -> None:
    from_zero = replace(ONE_POD, min_scale=0, initial_scale=0)
    run = simulate(scenario(from_zero), [(100.3, 1.0), (150.0, 1.0)], 200)
    assert first_audios(run) == [pytest.approx(111.3), pytest.approx(151.0)]  # at once, not at the next tick
    assert [request.cold for request in run.requests] == [True, False]
    assert run.pods_started == 1


def test_the_parts_of_a_cold_start_add_up() -> None:
    cold = ColdStart(pull=(3.0, 3.0), load=(4.0, 4.0), warm_up=(5.0, 5.0))
    from_zero = replace(ONE_POD, min_scale=0, initial_scale=0)
    run = simulate(Scenario(from_zero, EVEN, cold), [(100.0, 1.0)], 200)
    assert first_audios(run) == [113.0]


def test_the_last_pod_goes_after_a_quiet_window_and_the_retention() -> None:
    kpa = KpaSettings(
        container_concurrency=2,
        target_burst_capacity=-1,
        initial_scale=0,
        window=60,
        scale_to_zero_pod_retention_period=120,
    )
    run = simulate(scenario(kpa, cold=0.0), [(100.0, 5.0)], 600)
    gone = next(sample.time for sample in run.samples if sample.time > 100 and sample.pods == 0)
    # It ends at 102. The window of the seconds up to 162 holds none of it, the tick at 162 sees that.
    assert gone == 162 + 120
    assert run.pod_seconds == pytest.approx(gone - 100)


def test_requests_closer_than_window_and_retention_never_meet_a_cold_start_again() -> None:
    kpa = KpaSettings(
        container_concurrency=2, target_burst_capacity=-1, window=60, scale_to_zero_pod_retention_period=120
    )
    warm = simulate(scenario(kpa), [(200.0 + 170 * number, 1.0) for number in range(10)], 2000)
    assert not any(request.cold for request in warm.requests[1:])
    cold = simulate(scenario(kpa), [(200.0 + 210 * number, 1.0) for number in range(10)], 2300)
    assert all(request.cold for request in cold.requests[1:])


def test_a_burst_panics_scales_out_and_comes_back_by_halves() -> None:
    kpa = KpaSettings(container_concurrency=2, target=2, target_utilization_percentage=100, target_burst_capacity=-1)
    # 16 at once, each with 160 s of service: 8 pods.
    slow = ServiceTimes("slow", "test", (1.0,), (Load(1, 1.0, 1.0), Load(2, 1.0, 1.0)))
    run = simulate(scenario(kpa, slow, cold=4.0), [(100.0, 160.0)] * 16, 800)
    at = {sample.time: sample for sample in run.samples}
    assert at[102.0].panicking
    assert at[110.0].ready == 8
    desired = [sample.desired for sample in run.samples if sample.time > 110]
    steps = [now for before, now in pairwise(desired) if now != before]
    assert all(now >= before // 2 for before, now in pairwise(desired))
    assert steps[-1] == 0
    assert all(request.outcome is Outcome.SERVED for request in run.requests)


def test_a_pod_that_is_taken_away_finishes_its_streams() -> None:
    kpa = KpaSettings(
        container_concurrency=1, target=1, target_utilization_percentage=100, target_burst_capacity=-1, window=6
    )
    even = ServiceTimes("even", "test", (1.0,), (Load(1, 1.0, 1.0),))
    # Three short requests bring pods; a long one stays on its pod while the scale falls to 1.
    run = simulate(scenario(kpa, even, cold=1.0), [(100.0, 5.0)] * 3 + [(100.1, 100.0)], 400)
    assert all(request.outcome is Outcome.SERVED for request in run.requests)
    assert max(sample.pods for sample in run.samples) == 4


def test_who_waits_longer_than_the_timeout_is_given_up() -> None:
    # Two places: the first pair until 102.9, the second until 105.8; the last one would be next.
    run = simulate(scenario(timeout=3.0), [(100.0, 8.6)] * 4 + [(100.1, 1.0)], 200)
    assert [request.outcome for request in run.requests] == [Outcome.SERVED] * 4 + [Outcome.TIMED_OUT]
    assert ends(run)[-1] == 103.1
    assert run.requests[-1].entered is None


def test_a_stream_that_takes_longer_than_the_timeout_is_cut() -> None:
    run = simulate(scenario(timeout=3.0), [(100.0, 10.0), (100.0, 10.0), (100.1, 5.0)], 200)
    assert [request.outcome for request in run.requests] == [Outcome.TIMED_OUT] * 2 + [Outcome.SERVED]
    assert ends(run) == [103.0, 103.0, 105.0]  # its place is free at once


def test_a_full_queue_rejects() -> None:
    run = simulate(scenario(queue_capacity=3), [(100.0, 5.0)] * 8, 200)
    outcomes = [request.outcome for request in run.requests]
    assert outcomes == [Outcome.SERVED] * 5 + [Outcome.REJECTED] * 3
    assert run.max_queue == 3


def test_past_the_activator_requests_queue_in_their_pod() -> None:
    kpa = KpaSettings(container_concurrency=1, target_burst_capacity=0, min_scale=2, max_scale=2, initial_scale=2)
    # In turn: the long one's pod gets every second short one, which waits although the other pod is free.
    arrivals = [(100.0, 41.0)] + [(100.0 + 2 * number, 1.0) for number in range(1, 4)]
    direct = simulate(scenario(kpa), arrivals, 200)
    assert first_audios(direct) == [101.0, 103.0, 112.0, 107.0]
    pooled = simulate(scenario(replace(kpa, target_burst_capacity=-1)), arrivals, 200)
    assert first_audios(pooled) == [101.0, 103.0, 105.0, 107.0]


def test_a_stream_runs_dry_when_all_is_played_before_the_next_block_comes() -> None:
    alone = simulate(scenario(times=SHARED), [(100.0, 10.0)], 200)
    assert not alone.requests[0].dry  # at exactly real time each block comes in the nick of time
    both = simulate(scenario(times=SHARED), [(100.0, 10.0), (101.0, 10.0)], 200)
    assert both.requests[0].dry


@pytest.mark.parametrize(("stay", "dry"), [(2.0, False), (4.0, True)])
def test_audio_ahead_covers_a_neighbour_for_a_while(stay: float, dry: bool) -> None:
    times = replace(SHARED, loads=(Load(1, 1.0, 0.5), Load(2, stay, 2.0)))
    # Alone until 102.5, when 4 s are made and 1.5 s are played; the next block takes 2 s, the one after it as well.
    run = simulate(scenario(times=times), [(100.0, 10.0), (102.5, 0.4)], 200)
    assert run.requests[0].dry is dry


@pytest.mark.parametrize(("second_block", "dry"), [(0.9, False), (1.1, True)])
def test_a_long_block_after_a_short_one_runs_dry_though_the_rate_is_twice_real_time(
    second_block: float, dry: bool
) -> None:
    times = ServiceTimes("growing", "test", (0.5, second_block), (Load(1, 1.0, 0.5),))
    assert simulate(scenario(times=times), [(100.0, 10.0)], 200).requests[0].dry is dry


def test_pod_hours_are_from_creation_to_the_end() -> None:
    run = simulate(scenario(cold=10.0), [], 3600)
    assert run.pod_seconds == pytest.approx(3600)
    fixed = KpaSettings(container_concurrency=2, min_scale=3, max_scale=3, initial_scale=3)
    assert simulate(scenario(fixed), [(10.0, 5.0)], 3600).pod_seconds == pytest.approx(3 * 3600)


times_of_arrival = st.lists(st.floats(0, 300), max_size=60).map(sorted)


@settings(max_examples=60, deadline=None)
@given(
    times_of_arrival,
    st.integers(0, 4),
    st.sampled_from([-1, 0, 5]),
    st.integers(0, 30),
    st.integers(0, 3),
    st.floats(2, 40),
)
def test_every_request_is_served_rejected_or_timed_out_once(
    arrivals: list[float], limit: int, burst: float, capacity: int, most: int, timeout: float
) -> None:
    kpa = KpaSettings(container_concurrency=limit, target=1, target_burst_capacity=burst, max_scale=most, window=6)
    lengths = [0.5 + number % 7 for number in range(len(arrivals))]
    run = simulate(
        scenario(kpa, SHARED, cold=3.0, queue_capacity=capacity, timeout=timeout, pod_limit=3),
        list(zip(arrivals, lengths, strict=True)),
        400,
    )
    for request in run.requests:  # Request.end itself asserts that it is called once
        assert request.outcome is not None
        assert request.ended is not None
        assert request.ended >= request.arrived
        assert (request.first_audio is not None) >= (request.outcome is Outcome.SERVED)
    assert all(not most or sample.desired <= most for sample in run.samples)
    assert run.samples[-1].queue == 0


@settings(max_examples=40, deadline=None)
@given(times_of_arrival)
def test_more_pods_never_make_the_queue_longer(arrivals: list[float]) -> None:
    queues, waits = [], []
    for count in (1, 2, 3, 5):
        fixed = KpaSettings(
            container_concurrency=1,
            target_burst_capacity=-1,
            min_scale=count,
            max_scale=count,
            initial_scale=count,
        )
        run = simulate(scenario(fixed, cold=0.0, timeout=3600.0), [(time, 9.0) for time in arrivals], 400)
        queues.append(run.max_queue)
        waits.append(sum((request.entered or 0.0) - request.arrived for request in run.requests))
    assert queues == sorted(queues, reverse=True)
    assert all(more <= fewer + 1e-6 for fewer, more in pairwise(waits))


def test_the_seed_decides_everything() -> None:
    kpa = KpaSettings(target=2, max_scale=4)  # no hard limit: the activator draws
    cold = ColdStart(pull=(0.0, 20.0), load=(5.0, 10.0))
    arrivals = [(5.0 + number % 50 + number / 10, 6.0) for number in range(200)]
    arrivals.sort()
    one, same, other = (simulate(Scenario(kpa, SHARED, cold, seed=seed), arrivals, 600) for seed in (1, 1, 2))
    assert ends(one) == ends(same)
    assert one.samples == same.samples
    assert ends(one) != ends(other)
