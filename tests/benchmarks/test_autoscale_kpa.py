"""The autoscaler's decisions are those of Knative's published rules, worked out by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks.scaling.kpa import Decider, Decision, KpaSettings, Scaler, WindowAverage

# 10 per pod at 70 %: the autoscaler aims at 7.
SEVEN = KpaSettings(container_concurrency=10, target=10)


def pods(settings: KpaSettings, stable: float, panic: float | None = None, ready: int = 1) -> int:
    return Decider(settings).decide(0.0, stable, stable if panic is None else panic, ready).pods


@pytest.mark.parametrize(
    ("settings", "total", "target"),
    [
        (KpaSettings(), 100, 70),  # the cluster's defaults
        (KpaSettings(container_concurrency=8), 8, 5.6),
        (KpaSettings(container_concurrency=8, target=4), 4, 2.8),
        (KpaSettings(container_concurrency=8, target=20), 8, 5.6),  # never above the hard limit
        (KpaSettings(target=20, target_utilization_percentage=100), 20, 20),
    ],
)
def test_the_target_is_the_smaller_of_annotation_and_limit_times_utilization(
    settings: KpaSettings, total: float, target: float
) -> None:
    assert settings.total_per_pod == total
    assert settings.target_per_pod == pytest.approx(target)


@pytest.mark.parametrize(("concurrency", "wanted"), [(0.01, 1), (7, 1), (7.01, 2), (14, 2), (21.5, 4)])
def test_wanted_pods_are_concurrency_over_target_rounded_up(concurrency: float, wanted: int) -> None:
    assert pods(SEVEN, concurrency, ready=3) == wanted


@pytest.mark.parametrize(("ready", "least"), [(1, 0), (2, 1), (3, 1), (9, 4), (10, 5)])
def test_a_step_down_leaves_at_least_half_the_pods(ready: int, least: int) -> None:
    assert pods(SEVEN, 0.0, ready=ready) == least


def test_a_step_up_is_bounded_by_the_rate_but_never_stuck() -> None:
    slow = KpaSettings(container_concurrency=1, target=1, target_utilization_percentage=100, max_scale_up_rate=1.1)
    assert pods(slow, 3.0, ready=2) == 3  # ceil(2.2)
    assert pods(slow, 30.0, ready=10) == 11
    assert pods(KpaSettings(container_concurrency=1, target=1, max_scale_up_rate=2), 50.0, ready=0) == 2


@pytest.mark.parametrize(("panic", "panics"), [(7.0, False), (14.0, False), (14.1, True)])
def test_panic_begins_when_the_panic_window_wants_twice_the_ready_pods(panic: float, panics: bool) -> None:
    decision = Decider(SEVEN).decide(0.0, 1.0, panic, ready=1)
    # 14 wants exactly 2 pods of 1: at the threshold of 200 %, which is reached, not only passed.
    assert decision.panicking is (panics or panic == 14.0)
    assert Decider(SEVEN).decide(0.0, 1.0, panic, ready=2).panicking is False


def test_in_panic_the_larger_window_decides_and_nothing_goes_down() -> None:
    decider = Decider(SEVEN)
    assert decider.decide(0.0, 7.0, 35.0, ready=1) == Decision(5, True, True)
    assert decider.decide(2.0, 7.0, 70.0, ready=5).pods == 10
    assert decider.decide(4.0, 7.0, 0.0, ready=10) == Decision(10, True, True)
    assert decider.decide(6.0, 77.0, 0.0, ready=10).pods == 11  # the stable window may want more


def test_panic_ends_a_stable_window_after_the_last_time_over_the_threshold() -> None:
    decider = Decider(SEVEN)
    decider.decide(0.0, 7.0, 35.0, ready=1)
    decider.decide(20.0, 7.0, 35.0, ready=2)  # 5 of 2: over it again
    assert decider.decide(80.0, 7.0, 7.0, ready=5) == Decision(5, True, True)
    after = decider.decide(82.0, 7.0, 7.0, ready=5)
    assert (after.pods, after.panicking) == (2, False)  # floor(5 / 2)


def test_scale_down_delay_holds_the_largest_decision_of_its_time() -> None:
    decider = Decider(KpaSettings(container_concurrency=10, target=10, scale_down_delay=30))
    assert decider.decide(0.0, 21.0, 21.0, ready=3).pods == 3
    assert decider.decide(2.0, 7.0, 7.0, ready=3).pods == 3
    assert decider.decide(28.0, 14.0, 14.0, ready=3).pods == 3
    assert decider.decide(30.0, 7.0, 7.0, ready=3).pods == 2  # of the last 30 s: 7 and 14
    assert decider.decide(58.0, 7.0, 7.0, ready=2).pods == 1


def test_activation_scale_is_the_least_while_there_is_demand() -> None:
    settings = KpaSettings(container_concurrency=10, target=10, activation_scale=3)
    assert pods(settings, 1.0, ready=0) == 3
    assert pods(settings, 28.0, ready=0) == 4
    assert pods(settings, 0.0, ready=1) == 0


@pytest.mark.parametrize(
    ("burst", "ready", "panic", "in_path"),
    [
        (-1, 100, 0.0, True),
        (0, 1, 1000.0, False),
        (0, 0, 0.0, True),  # at zero there is nobody else
        (200, 20, 0.0, False),  # 20 x 10 - 200 - 0 = 0: just enough
        (200, 20, 0.5, True),
        (200, 30, 100.0, False),
        (200, 30, 100.1, True),
    ],
)
def test_the_activator_is_in_the_path_while_the_burst_does_not_fit(
    burst: float, ready: int, panic: float, in_path: bool
) -> None:
    settings = KpaSettings(container_concurrency=10, target=10, target_burst_capacity=burst)
    assert Decider(settings).decide(0.0, 0.0, panic, ready).activator_in_path is in_path


def test_the_window_averages_its_last_seconds() -> None:
    window = WindowAverage(6)
    for second, value in enumerate([12, 0, 0, 0, 0, 0, 6]):
        window.record(second, value)
    assert window.average(6) == 1.0  # the 12 has left
    assert window.average(11) == 1.0
    assert window.average(12) == 0.0


def test_a_young_window_averages_over_the_seconds_it_has() -> None:
    window = WindowAverage(60)
    window.record(100, 8.0)
    assert window.average(100) == 8.0
    window.record(101, 4.0)
    assert window.average(101) == 6.0
    window.record(161, 3.0)  # a whole window later: a new beginning
    assert window.average(161) == 3.0
    assert WindowAverage(60).average(5) == 0.0


def test_a_window_of_zeros_is_exactly_zero_after_any_values() -> None:
    window = WindowAverage(6)
    for second in range(1000):
        window.record(second, 0.1 * (second % 7))
    for second in range(1000, 1006):
        window.record(second, 0.0)
    assert window.average(1005) == 0.0


@pytest.mark.parametrize(("window", "percentage", "panic"), [(60, 10, 6), (120, 10, 12), (6, 10, 1), (65, 10, 6)])
def test_the_panic_window_is_a_share_of_the_stable_one(window: int, percentage: float, panic: int) -> None:
    assert KpaSettings(window=window, panic_window_percentage=percentage).panic_window == panic


def zero(in_path: bool = True) -> Decision:
    return Decision(0, False, in_path)


def last_pod_goes_at(settings: KpaSettings, in_path: bool = True) -> float:
    """Seconds, by the tick, from the first decision for zero of a revision that has long been active."""
    scaler = Scaler(settings)
    scaler.replicas(0.0, Decision(1, False, in_path), pods=1, ready=1)
    begins = 1000.0
    for tick in range(0, 4000, 2):
        if scaler.replicas(begins + tick, zero(in_path), pods=1, ready=1) == 0:
            return tick
    return math.inf


def test_the_last_pod_stays_for_the_retention() -> None:
    assert last_pod_goes_at(KpaSettings()) == 0
    assert last_pod_goes_at(KpaSettings(scale_to_zero_pod_retention_period=600)) == 600


def test_the_grace_period_counts_when_the_activator_must_first_get_into_the_path() -> None:
    assert last_pod_goes_at(KpaSettings(), in_path=False) == 30
    longer = KpaSettings(scale_to_zero_pod_retention_period=600)
    assert last_pod_goes_at(longer, in_path=False) == 600  # the longer of the two, not their sum


def test_a_revision_is_active_for_a_stable_window_before_it_goes_to_zero() -> None:
    scaler = Scaler(KpaSettings(window=60, initial_scale=0))
    assert scaler.replicas(0.0, Decision(2, False, True), pods=0, ready=0) == 2
    assert scaler.replicas(10.0, zero(), pods=2, ready=0) == 2  # still starting: left alone
    assert scaler.replicas(20.0, zero(), pods=2, ready=2) == 1
    assert scaler.replicas(78.0, zero(), pods=1, ready=1) == 1
    assert scaler.replicas(80.0, zero(), pods=1, ready=1) == 0
    assert scaler.replicas(82.0, zero(), pods=0, ready=0) == 0


def test_a_request_during_the_retention_starts_it_anew() -> None:
    scaler = Scaler(KpaSettings(scale_to_zero_pod_retention_period=100))
    scaler.replicas(0.0, Decision(1, False, True), pods=1, ready=1)
    assert scaler.replicas(200.0, zero(), pods=1, ready=1) == 1
    assert scaler.replicas(290.0, Decision(1, False, True), pods=1, ready=1) == 1
    assert scaler.replicas(352.0, zero(), pods=1, ready=1) == 1
    assert scaler.replicas(450.0, zero(), pods=1, ready=1) == 1
    assert scaler.replicas(452.0, zero(), pods=1, ready=1) == 0


def test_bounds_hold_and_min_scale_keeps_from_zero() -> None:
    bounded = Scaler(KpaSettings(min_scale=1, max_scale=3))
    assert bounded.replicas(0.0, Decision(9, False, True), pods=1, ready=1) == 3
    assert bounded.replicas(9999.0, zero(), pods=3, ready=3) == 1


def test_the_initial_scale_is_kept_until_it_was_reached() -> None:
    scaler = Scaler(KpaSettings(initial_scale=3, window=60))
    assert scaler.replicas(0.0, zero(), pods=0, ready=0) == 3
    assert scaler.replicas(500.0, zero(), pods=3, ready=2) == 3
    assert scaler.replicas(502.0, zero(), pods=3, ready=3) == 1
    assert scaler.replicas(562.0, zero(), pods=1, ready=1) == 0


@pytest.mark.parametrize(
    "values",
    [
        {"window": 5},
        {"window": 3601},
        {"target": 0.0},
        {"target_utilization_percentage": 0},
        {"panic_threshold_percentage": 100},
        {"scale_to_zero_pod_retention_period": 3601},
        {"scale_down_delay": -1},
        {"target_burst_capacity": -2},
        {"min_scale": 4, "max_scale": 3},
        {"activation_scale": 4, "max_scale": 3},
        {"container_concurrency": 1001},
        {"max_scale_down_rate": 1},
    ],
)
def test_what_admission_refuses_cannot_be_simulated(values: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(values)).replace("_", "-")):
        KpaSettings(**values)
