"""Rules of Knative's webhook for the annotations of a revision: how it scales, and how long it may take to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.kserve.quantity import BadQuantityError, number, seconds, whole
from tests.kserve.revision import AUTOSCALING, ROLLOUT_DURATION, Revision

KPA, HPA = "kpa.autoscaling.knative.dev", "hpa.autoscaling.knative.dev"
PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"
HOUR = 3600.0


def _bounded(
    revision: Revision, name: str, parse: Callable[[str], float], low: float, high: float = float("inf")
) -> Iterator[str]:
    """The annotation, where it is set, parses to a number from `low` to `high`."""
    text = revision.annotations.get(name)
    if text is None:
        return
    try:
        value = parse(text)
    except BadQuantityError as error:
        yield f"{name}: {error}"
        return
    if not low <= value <= high:
        yield f"{name}: {text} is not from {low:g} to {high:g}"


def _whole_seconds(text: str) -> float:
    value = seconds(text)
    if value != int(value):
        raise BadQuantityError(f"{text!r} is not in whole seconds")
    return value


def _class(revision: Revision) -> str:
    return revision.annotations.get(f"{AUTOSCALING}class", KPA)


def autoscaler_is_kpa_or_hpa(revision: Revision) -> Iterator[str]:
    # A class of another domain is somebody's own autoscaler and none of Knative's business.
    if _class(revision).endswith("autoscaling.knative.dev") and _class(revision) not in (KPA, HPA):
        yield f"class {_class(revision)!r}"


def min_scale_is_a_count(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}min-scale", whole, 0)


def max_scale_is_a_count(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}max-scale", whole, 0)


def scales_are_in_order(revision: Revision) -> Iterator[str]:
    low, high = _scale(revision, "min-scale"), _scale(revision, "max-scale")
    if 0 < high < low:
        yield f"max-scale {high} is below min-scale {low}"


def activation_scale_is_between_the_scales(revision: Revision) -> Iterator[str]:
    text = revision.annotations.get(f"{AUTOSCALING}activation-scale")
    if text is None:
        return
    low, high = max(2, _scale(revision, "min-scale")), _scale(revision, "max-scale") or float("inf")
    yield from _bounded(revision, f"{AUTOSCALING}activation-scale", whole, low, high)


def initial_scale_is_one_or_more(revision: Revision) -> Iterator[str]:
    # 0 is for clusters that allow it; elsewhere KServe deletes the annotation and goes on with the default.
    yield from _bounded(revision, f"{AUTOSCALING}initial-scale", whole, 1)


def the_metric_is_one_of_the_class(revision: Revision) -> Iterator[str]:
    metric = revision.annotations.get(f"{AUTOSCALING}metric", "concurrency")
    if _class(revision) == KPA and metric not in ("concurrency", "rps"):
        yield f"metric {metric!r} of the KPA"
    if _class(revision) == HPA and not metric:
        yield "an empty metric of the HPA"


def target_is_positive(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}target", number, 0.01)


def target_utilization_is_a_percentage(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}target-utilization-percentage", number, 1, 100)


def burst_capacity_is_a_count_or_minus_one(revision: Revision) -> Iterator[str]:
    if revision.annotations.get(f"{AUTOSCALING}target-burst-capacity") != "-1":
        yield from _bounded(revision, f"{AUTOSCALING}target-burst-capacity", number, 0)


def panic_window_is_a_percentage(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}panic-window-percentage", number, 1, 100)


def panic_threshold_is_over_the_target(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}panic-threshold-percentage", number, 110, 1000)


def window_is_six_seconds_to_an_hour(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}window", _whole_seconds, 6, HOUR)


def scale_down_delay_is_at_most_an_hour(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}scale-down-delay", _whole_seconds, 0, HOUR)


def retention_is_at_most_an_hour(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, f"{AUTOSCALING}scale-to-zero-pod-retention-period", seconds, 0, HOUR)


def progress_deadline_is_whole_seconds(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, PROGRESS_DEADLINE, _whole_seconds, 0)


def rollout_duration_is_whole_seconds(revision: Revision) -> Iterator[str]:
    yield from _bounded(revision, ROLLOUT_DURATION, _whole_seconds, 0)


def aggregation_is_linear_or_weighted(revision: Revision) -> Iterator[str]:
    value = revision.annotations.get(f"{AUTOSCALING}metric-aggregation-algorithm", "linear")
    if _class(revision) == KPA and value not in ("linear", "weighted-exponential", "weightedExponential"):
        yield f"metric-aggregation-algorithm {value!r}"


def _scale(revision: Revision, name: str) -> int:
    try:
        return whole(revision.annotations.get(AUTOSCALING + name, "0"))
    except BadQuantityError:
        return 0  # the rule of that annotation says so


RULES = (
    autoscaler_is_kpa_or_hpa,
    min_scale_is_a_count,
    max_scale_is_a_count,
    scales_are_in_order,
    activation_scale_is_between_the_scales,
    initial_scale_is_one_or_more,
    the_metric_is_one_of_the_class,
    target_is_positive,
    target_utilization_is_a_percentage,
    burst_capacity_is_a_count_or_minus_one,
    panic_window_is_a_percentage,
    panic_threshold_is_over_the_target,
    window_is_six_seconds_to_an_hour,
    scale_down_delay_is_at_most_an_hour,
    retention_is_at_most_an_hour,
    progress_deadline_is_whole_seconds,
    rollout_duration_is_whole_seconds,
    aggregation_is_linear_or_weighted,
)
