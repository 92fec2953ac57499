"""Rules of canaries: `spec.canary` of Standard mode, and `canaryTrafficPercent`, which only Knative's Route bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kserve.kserve_rules import implementation_errors, mode

Object = dict[str, Any]


def canary_traffic_percent_is_a_percentage(isvc: Object) -> Iterator[str]:
    # KServe lets any number through; the Route that it writes then fails, with the change half done.
    percent = isvc["spec"]["predictor"].get("canaryTrafficPercent", 100)
    if not 0 <= percent <= 100:
        yield f"canaryTrafficPercent {percent}"


def canaries_need_standard_mode(isvc: Object) -> Iterator[str]:
    if _canaries(isvc) and mode(isvc) != "Standard":
        yield f"spec.canary in mode {mode(isvc)}"


def canaries_need_a_stable_model(isvc: Object) -> Iterator[str]:
    predictor = isvc["spec"]["predictor"]
    env = [item for container in predictor.get("containers", [])[:1] for item in container.get("env", [])]
    if _canaries(isvc) and "model" not in predictor and not any(item["name"] == "STORAGE_URI" for item in env):
        yield "the stable predictor has neither model nor STORAGE_URI"


def canaries_have_names_of_their_own(isvc: Object) -> Iterator[str]:
    names = [canary["predictor"].get("name", "") for canary in _canaries(isvc)]
    taken = {isvc["spec"]["predictor"].get("name", "")}
    for name in names:
        if not name or name in taken:
            yield f"predictor.name {name!r} is missing or taken"
        taken.add(name)


def canaries_share_at_most_all_traffic(isvc: Object) -> Iterator[str]:
    percents = [canary["trafficPercent"] for canary in _canaries(isvc)]
    if any(not 0 <= percent <= 100 for percent in percents) or sum(percents) > 100:
        yield f"trafficPercent {percents}"


def canaries_have_one_implementation(isvc: Object) -> Iterator[str]:
    for canary in _canaries(isvc):
        yield from implementation_errors("canary", canary["predictor"])


def canaries_do_not_scale(isvc: Object) -> Iterator[str]:
    for canary in _canaries(isvc):
        for field in ("maxReplicas", "scaleTarget", "scaleMetric", "autoScaling", "workerSpec"):
            if field in canary["predictor"]:
                yield f"canary.{field}"


def canaries_are_not_larger_than_the_stable(isvc: Object) -> Iterator[str]:
    stable = isvc["spec"]["predictor"].get("minReplicas", 1)
    for canary in _canaries(isvc):
        if canary["predictor"].get("minReplicas", 0) > stable:
            yield f"minReplicas {canary['predictor']['minReplicas']} over the stable predictor's {stable}"


def _canaries(isvc: Object) -> list[Object]:
    return isvc["spec"].get("canary", [])


RULES = (
    canary_traffic_percent_is_a_percentage,
    canaries_need_standard_mode,
    canaries_need_a_stable_model,
    canaries_have_names_of_their_own,
    canaries_share_at_most_all_traffic,
    canaries_have_one_implementation,
    canaries_do_not_scale,
    canaries_are_not_larger_than_the_stable,
)
