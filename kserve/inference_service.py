"""What a live InferenceService says of itself: its mode, its revisions, its traffic and its conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MODE = "serving.kserve.io/deploymentMode"
FORMER_MODES = {"Serverless": "Knative", "RawDeployment": "Standard"}


@dataclass(frozen=True)
class Condition:
    """One condition of the status; `status` is True, False or Unknown."""

    kind: str
    status: str
    reason: str
    message: str

    def __str__(self) -> str:
        why = ": ".join(part for part in (self.reason, self.message) if part)
        return f"{self.kind} {self.status}" + (f" ({why})" if why else "")


@dataclass(frozen=True)
class Target:
    """One line of the traffic: `percent` of the requests go to `revision`."""

    revision: str
    percent: int
    latest: bool
    tag: str
    url: str


@dataclass(frozen=True)
class InferenceService:
    """A view of the API's object; nothing here is sent back."""

    document: dict

    @property
    def name(self) -> str:
        return self.document["metadata"]["name"]

    @property
    def uid(self) -> str:
        return self.document["metadata"].get("uid", "")

    @property
    def generation(self) -> int:
        return self.document["metadata"].get("generation", 0)

    @property
    def deleting(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))

    @property
    def annotations(self) -> dict[str, str]:
        return self.document["metadata"].get("annotations") or {}

    @property
    def labels(self) -> dict[str, str]:
        return self.document["metadata"].get("labels") or {}

    @property
    def spec(self) -> dict:
        return self.document["spec"]

    @property
    def status(self) -> dict:
        return self.document.get("status") or {}

    @property
    def mode(self) -> str:
        """Knative or Standard; empty where neither annotation nor status says."""
        mode = self.annotations.get(MODE) or self.status.get("deploymentMode") or ""
        return FORMER_MODES.get(mode, mode)

    @property
    def percent(self) -> int | None:
        """canaryTrafficPercent of the spec; None: the newest ready revision has everything."""
        return self.spec.get("predictor", {}).get("canaryTrafficPercent")

    @property
    def canaries(self) -> list[dict]:
        """`spec.canary` of Standard mode."""
        return self.spec.get("canary") or []

    @property
    def canary_under_way(self) -> bool:
        return bool(self.canaries) or (self.percent is not None and self.percent < 100)

    @property
    def observed(self) -> int:
        """status.observedGeneration. KServe copies it from the Knative Service or the Deployment below.

        So it counts *their* changes: it may be ahead of or behind metadata.generation for good.
        """
        return self.status.get("observedGeneration", 0)

    @property
    def conditions(self) -> dict[str, Condition]:
        return {
            item["type"]: Condition(
                item["type"], item.get("status", "Unknown"), item.get("reason", ""), item.get("message", "")
            )
            for item in self.status.get("conditions", [])
        }

    def is_true(self, kind: str) -> bool:
        condition = self.conditions.get(kind)
        return condition is not None and condition.status == "True"

    @property
    def ready(self) -> bool:
        return self.is_true("Ready")

    @property
    def _predictor(self) -> dict:
        return self.status.get("components", {}).get("predictor", {})

    @property
    def created_revision(self) -> str:
        """The newest revision there is, ready or not."""
        return self._predictor.get("latestCreatedRevision", "")

    @property
    def ready_revision(self) -> str:
        """The newest revision that became ready."""
        return self._predictor.get("latestReadyRevision", "")

    @property
    def rolled_out_revision(self) -> str:
        """The last revision that got all traffic."""
        return self._predictor.get("latestRolledoutRevision", "")

    @property
    def previous_revision(self) -> str:
        """The one that had all traffic before."""
        return self._predictor.get("previousRolledoutRevision", "")

    @property
    def settled(self) -> bool:
        """Whether what is live now has proven itself: it is ready and, in Knative mode, has had all traffic."""
        if self.mode == "Standard":
            return self.ready
        return bool(self.created_revision) and self.created_revision == self.rolled_out_revision

    @property
    def traffic(self) -> tuple[Target, ...]:
        return tuple(
            Target(
                item.get("revisionName", ""),
                item.get("percent") or 0,
                bool(item.get("latestRevision")),
                item.get("tag", ""),
                item.get("url", ""),
            )
            for item in self._predictor.get("traffic", [])
        )

    def share_of(self, revision: str) -> int:
        """Percent of the traffic that reaches `revision`."""
        return sum(target.percent for target in self.traffic if target.revision == revision)

    @property
    def latest_share(self) -> int | None:
        """Percent on the route's `latestRevision` line; None where there is no such line yet."""
        shares = [target.percent for target in self.traffic if target.latest]
        return sum(shares) if shares else None

    @property
    def url(self) -> str:
        return self.status.get("url", "")

    def tag_url(self, tag: str) -> str:
        return next((target.url for target in self.traffic if target.tag == tag and target.url), "")

    def troubles(self) -> Iterator[Condition]:
        """The conditions that are not True, the most telling first: those with a reason of their own."""
        open_ones = [condition for condition in self.conditions.values() if condition.status != "True"]
        yield from sorted(open_ones, key=lambda condition: (not condition.message, condition.kind == "Ready"))

    @property
    def load_failure(self) -> str:
        """What KServe noted of a model that failed to load."""
        model = self.status.get("modelStatus", {})
        if model.get("transitionStatus") not in ("BlockedByFailedLoad", "InvalidSpec"):
            return ""
        failure = model.get("lastFailureInfo") or {}
        return ": ".join(str(failure[key]) for key in ("reason", "message") if failure.get(key))
