"""Rollouts in Standard mode: `spec.canary`, a second Deployment beside the stable one (KServe 0.20 and later)."""

from __future__ import annotations

import copy

from kserve.models import V1beta1CanarySpec
from kubernetes.client import ApiClient

import goals
from cluster import Cluster
from errors import RolloutError
from inference_service import MODE, InferenceService
from manifest import Change, Record, keep, live_document, restore
from waiting import Patience, Progress, wait_for

CANARY = "canary"
# The webhook refuses these in a canary, whose number of pods is fixed; minReplicas is set here.
SCALING = ("minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "autoScaling", "workerSpec")
NOT_COPIED = (*SCALING, "canaryTrafficPercent", "deploymentStrategy", "name")


class StandardRollout:
    """Canary, promotion and rollback of one InferenceService; each may be called again after it was cut off."""

    def __init__(self, cluster: Cluster, patience: Patience, progress: Progress) -> None:
        self._cluster, self._patience, self._progress = cluster, patience, progress

    def canary(self, change: Change | None, percent: int, force: bool = False) -> InferenceService:
        """Sends `percent` of the traffic to a canary Deployment; without `change`, to the one under way."""
        before, after = self._cluster.edit(lambda live: self._canary_document(live, change, percent, force))
        if after is before and not before.canary_under_way:
            self._progress.say("nothing to do: the stable predictor is of this template already")
            return before
        goal = goals.rolled(before, after, f"a ready canary with {percent} %")
        service = wait_for(self._cluster, goal, self._patience, self._progress)
        self._progress.say(f"the canary is ready and has {percent} % of the traffic")
        return service

    def promote(self) -> InferenceService:
        """Makes the canary's template the stable one, and takes the canary away when the stable one has rolled."""
        live = self._cluster.require()
        if not live.canaries:
            service = self._await(live, live, "readiness")
            self._progress.say("nothing to promote: no canary is under way")
            return service
        self._await(live, live, "a ready canary")
        before, after = self._cluster.edit(_canary_to_stable)
        self._await(before, after, "a rolled stable predictor")
        before, after = self._cluster.edit(_without_canary)
        service = self._await(before, after, "the end of the canary")
        self._progress.say("promoted: the stable predictor has the canary's template")
        return service

    def rollback(self, undo: bool = False) -> None:
        """Takes the canary away, or ends a deploy that failed; with `undo` takes back a finished rollout too."""
        live = self._cluster.require()
        half_promoted = any(template_of(item["predictor"]) == _pods(live, item) for item in live.canaries)
        if live.canaries:
            before, after = self._cluster.edit(_without_canary)
            live = self._await(before, after, "the end of the canary")
            self._progress.say("the canary is gone; the stable predictor has 100 % of the traffic")
            if not half_promoted:
                return
        record = Record.read(live)
        used_up = record is None or record.restored
        if used_up or (live.settled and not undo and not half_promoted):
            hint = "" if used_up else "; --undo takes back the finished rollout"
            self._progress.say(f"nothing to roll back{hint}")
            return
        before, after = self._cluster.edit(_restored)
        self._await(before, after, "the restored template")
        self._progress.say("rolled back: the stable predictor has the previous template")

    def _canary_document(self, live: InferenceService, change: Change | None, percent: int, force: bool) -> dict | None:
        _refuse_unsupported(live)
        if change is None:
            if len(live.canaries) != 1:
                raise RolloutError(f"{len(live.canaries)} canaries are under way: say what to try with --image or -f")
            predictor = live.canaries[0]["predictor"]
        else:
            predictor = _canary_predictor(live, change(live)["spec"]["predictor"])
            if predictor is None and not live.canaries:
                return None
        wanted = _canary(predictor, percent)
        if live.canaries == [wanted]:
            return None
        same = [item["predictor"] for item in live.canaries] == [wanted["predictor"]]
        if live.canaries and not same and not force:
            raise RolloutError("another canary is under way: promote it, roll it back, or replace it with --force")
        document = live_document(live)
        document["spec"]["canary"] = [wanted]
        return document

    def _await(self, before: InferenceService, after: InferenceService, what: str) -> InferenceService:
        return wait_for(self._cluster, goals.rolled(before, after, what), self._patience, self._progress)


def _refuse_unsupported(live: InferenceService) -> None:
    """What KServe's webhook and controller demand of a stable predictor that gets a canary, as sentences."""
    predictor = live.spec["predictor"]
    if live.annotations.get(MODE) != "Standard":
        raise RolloutError(f"a canary in Standard mode needs the annotation {MODE}: Standard, in exactly these words")
    env = [item["name"] for container in predictor.get("containers", [])[:1] for item in container.get("env", [])]
    if not predictor.get("model") and "STORAGE_URI" not in env:
        raise RolloutError(
            "a canary in Standard mode needs a stable predictor with `model`, or STORAGE_URI in its first container"
        )
    if predictor.get("minReplicas") == 0:
        raise RolloutError("with minReplicas 0 KServe gives a canary no pod: deploy with minReplicas 1 or more first")
    if not live.canaries and not live.ready:
        raise RolloutError(f"{live.name} is not ready, so a canary has nothing to be compared with: deploy it first")


def _canary_predictor(live: InferenceService, changed: dict) -> dict | None:
    """What the canary differs in: the changed template without scaling; None if it does not differ.

    KServe lays it over the stable predictor, so what a manifest leaves out stays as the stable one has it.
    """
    if template_of(changed) == template_of(live.spec["predictor"]):
        return None
    predictor = {key: value for key, value in changed.items() if key not in NOT_COPIED}
    return {"name": CANARY, "minReplicas": 1, **predictor}


def _canary(predictor: dict | None, percent: int) -> dict:
    if predictor is None:
        raise RolloutError("the stable predictor is of this template already: end the canary with rollback")
    return ApiClient().sanitize_for_serialization(V1beta1CanarySpec(predictor=predictor, traffic_percent=percent))


def template_of(predictor: dict) -> dict:
    """What of a predictor its pods are made of."""
    return {key: value for key, value in predictor.items() if key not in NOT_COPIED}


def _pods(live: InferenceService, canary: dict) -> dict:
    """The fields of the stable predictor that `canary` sets."""
    return {key: live.spec["predictor"].get(key) for key in template_of(canary["predictor"])}


def _canary_to_stable(live: InferenceService) -> dict | None:
    if len(live.canaries) != 1:
        raise RolloutError(f"{len(live.canaries)} canaries are under way: it is not clear which one to promote")
    promoted = template_of(live.canaries[0]["predictor"])
    document = live_document(live)
    document["spec"]["predictor"].update(copy.deepcopy(promoted))
    if document["spec"] == live.spec:
        return None
    record = Record.leading_back_from(InferenceService({**live.document, "spec": _stable(live)}))
    keep(document, record)
    return document


def _without_canary(live: InferenceService) -> dict | None:
    if not live.canaries:
        return None
    document = live_document(live)
    document["spec"] = _stable(live)
    return document


def _stable(live: InferenceService) -> dict:
    return {key: copy.deepcopy(value) for key, value in live.spec.items() if key != "canary"}


def _restored(live: InferenceService) -> dict | None:
    record = Record.read(live)
    if record is None or record.restored:
        return None
    document = restore(live, record)
    keep(document, record.used_up(live))
    return document
