"""What KServe's and Knative's controllers make of one InferenceService, some time after each change.

Follows KServe's ksvc_reconciler.go, inference_service_status.go (PropagateStatus) and predictor.go. The clock decides:
nothing runs in between, each look at the object computes what would have happened by then. An image whose name holds
`broken` makes a revision that fails, `stuck` one that never becomes ready.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

KEPT_OUT = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
)


@dataclass
class Delays:
    """Seconds until a controller notices a change, until a pod is ready, and until a finalizer is done."""

    notice: float = 0.1
    start: float = 0.15
    finalizer: float = 0.2


@dataclass
class Revision:
    name: str
    image: str
    ready_at: float

    @property
    def broken(self) -> bool:
        return "broken" in self.image

    @property
    def ready(self) -> bool:
        return not self.broken and "stuck" not in self.image and time.monotonic() >= self.ready_at

    @property
    def failed(self) -> bool:
        return self.broken and time.monotonic() >= self.ready_at


class Controller:
    """The state below one InferenceService: its Knative Service or its Deployments."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._seen: tuple | None = None
        self._pending: tuple | None = None
        self._due = 0.0
        self._template: dict | None = None
        self._targets: list[tuple[str, int]] = []
        self._revisions: list[Revision] = []
        self._generation = 0
        self._rolled_out = self._previous = ""
        self._canary_since: dict[str, tuple[dict, float]] = {}

    def status(self, item: dict) -> dict | None:
        """The status by now; None as long as no controller has seen the object."""
        wanted = copy.deepcopy(
            (item["spec"], item["metadata"].get("annotations") or {}, item["metadata"].get("labels"))
        )
        if wanted != self._seen and wanted != self._pending:
            self._pending, self._due = wanted, time.monotonic() + self._delays.notice
        if self._pending is not None and time.monotonic() >= self._due:
            self._seen, self._pending = self._pending, None
        if self._seen is None:
            return None
        spec, annotations, labels = self._seen
        name = item["metadata"]["name"]
        if annotations.get("serving.kserve.io/deploymentMode") == "Standard":
            return self._standard(spec, annotations, labels)
        return self._knative(name, spec, annotations, labels)

    def _knative(self, name: str, spec: dict, annotations: dict, labels: dict | None) -> dict:
        changed = self._make_revision(f"{name}-predictor", spec, annotations, labels)
        tagged = annotations.get("serving.kserve.io/enable-tag-routing") == "true"
        # KServe looks again when the status changed, and its traffic depends on its status.
        for _ in range(3):
            targets = self._desired_targets(spec["predictor"].get("canaryTrafficPercent"))
            # Template and traffic are written together, so one change of both is one generation.
            self._generation += changed or targets != self._targets
            self._targets, changed = targets, False
            traffic = self._resolved(f"{name}-predictor", tagged)
            self._note_rolled_out(traffic)
        return self._knative_status(traffic)

    def _make_revision(self, prefix: str, spec: dict, annotations: dict, labels: dict | None) -> bool:
        predictor = {key: value for key, value in spec["predictor"].items() if key != "canaryTrafficPercent"}
        copied = {key: value for key, value in annotations.items() if key not in KEPT_OUT}
        copied.pop("serving.knative.dev/rollout-duration", None)
        template = {"predictor": predictor, "annotations": copied, "labels": labels}
        if template == self._template:
            return False
        self._template = copy.deepcopy(template)
        number = len(self._revisions) + 1
        ready_at = time.monotonic() + self._delays.start
        self._revisions.append(Revision(f"{prefix}-{number:05d}", _image(predictor), ready_at))
        return True

    def _desired_targets(self, percent: int | None) -> list[tuple[str, int]]:
        """The Knative Service's traffic: an empty name is the newest ready revision."""
        if percent is None or not self._rolled_out:
            return [("", 100)]
        return [("", percent)] + ([(self._rolled_out, 100 - percent)] if percent < 100 else [])

    @property
    def _newest_ready(self) -> str:
        return next((revision.name for revision in reversed(self._revisions) if revision.ready), "")

    def _resolved(self, host: str, tagged: bool) -> list[dict]:
        if not self._newest_ready:
            return []
        traffic: list[dict] = []
        for name, percent in self._targets:
            line = {"latestRevision": not name, "percent": percent, "revisionName": name or self._newest_ready}
            tag = "prev" if name else "latest" if tagged else ""
            if tag:
                line |= {"tag": tag, "url": f"http://{tag}-{host}.tts.example.com"}
            traffic.append(line)
        return traffic

    def _note_rolled_out(self, traffic: list[dict]) -> None:
        newest = self._newest_ready
        for line in traffic:
            if not line["latestRevision"] or line["revisionName"] != newest:
                continue
            if self._rolled_out != newest:
                if line["percent"] == 100:
                    self._previous, self._rolled_out = self._rolled_out, newest
            elif newest == self._revisions[-1].name and line["percent"] < 100 and self._previous:
                total = sum(other["percent"] for other in traffic if other["revisionName"] == newest)
                if total == 100:
                    self._rolled_out = self._previous

    def _knative_status(self, traffic: list[dict]) -> dict:
        newest = self._revisions[-1]
        configuration = _condition("PredictorConfigurationReady", "Unknown", "Deploying", "")
        if newest.ready:
            configuration = _condition("PredictorConfigurationReady", "True")
        elif newest.failed:
            message = f'Revision "{newest.name}" failed with message: Container failed with: exit code 1.'
            configuration = _condition("PredictorConfigurationReady", "False", "RevisionFailed", message)
        routed = "True" if traffic else "Unknown"
        ready = {**configuration, "type": "PredictorReady"}
        component = {
            "latestCreatedRevision": newest.name,
            "latestReadyRevision": self._newest_ready,
            "latestRolledoutRevision": self._rolled_out,
            "previousRolledoutRevision": self._previous,
            "traffic": traffic,
        }
        return {
            # As KServe does it: the Knative Service's number, not the InferenceService's.
            "observedGeneration": self._generation,
            "deploymentMode": "Knative",
            "url": "http://cosyvoice.tts.example.com",
            "conditions": [
                configuration,
                ready,
                _condition("RoutesReady", routed),
                {**ready, "type": "Ready"},
            ],
            "components": {"predictor": {key: value for key, value in component.items() if value}},
        }

    def _standard(self, spec: dict, annotations: dict, labels: dict | None) -> dict:
        self._generation += self._make_revision("deployment", spec, annotations, labels)
        newest = self._revisions[-1]
        ready = _condition("PredictorReady", "Unknown", "ReplicaSetUpdated", "")
        if newest.ready:
            ready = _condition("PredictorReady", "True")
        elif newest.failed:
            message = "ReplicaSet has timed out progressing."
            ready = _condition("PredictorReady", "False", "ProgressDeadlineExceeded", message)
        canaries = [self._canary_status(canary) for canary in spec.get("canary") or []]
        status = {
            "observedGeneration": self._generation,
            "deploymentMode": "Standard",
            "url": "http://cosyvoice.tts.example.com",
            "conditions": [ready, {**ready, "type": "Ready"}],
            "components": {"predictor": {}},
            "canaryStatuses": canaries,
        }
        return {key: value for key, value in status.items() if value != []}

    def _canary_status(self, canary: dict) -> dict:
        name = canary["predictor"]["name"]
        former, since = self._canary_since.get(name, (None, 0.0))
        if former != canary["predictor"]:
            since = time.monotonic()
            self._canary_since[name] = (copy.deepcopy(canary["predictor"]), since)
        pod = Revision(name, _image(canary["predictor"]), since + self._delays.start)
        return {"name": name, "ready": pod.ready, "trafficPercent": canary["trafficPercent"]}


def _image(predictor: dict) -> str:
    containers = predictor.get("containers") or [predictor.get("model", {})]
    return containers[0].get("image", "")


def _condition(kind: str, status: str, reason: str = "", message: str = "") -> dict:
    return {"type": kind, "status": status} | ({"reason": reason, "message": message} if reason else {})
