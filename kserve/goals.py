"""When a write has arrived: the goals that deploy, canary, promotion and rollback wait for, in both modes."""

from __future__ import annotations

from collections.abc import Callable

from inference_service import InferenceService
from manifest import template
from waiting import Goal

Judge = Callable[[InferenceService], bool]
# Reasons after which Kubernetes or Knative have given up; any other False is a step on the way.
DEPLOYMENT_FAILURES = ("ProgressDeadlineExceeded", "FailedCreate", "ReplicaFailure")


def deployed(before: InferenceService | None, after: InferenceService) -> Goal:
    """What a deploy waits for that wrote `after` over `before`; both the same where nothing was written."""
    if after.mode == "Standard":
        return rolled(before, after, "readiness")
    return shifted(before, after, after.percent, "a ready revision with its traffic")


def shifted(before: InferenceService | None, after: InferenceService, percent: int | None, what: str) -> Goal:
    """Knative: the newest revision is ready and has `percent` of the traffic (None: all of it)."""

    def looks_done(service: InferenceService) -> bool:
        newest = service.created_revision
        everything = percent is None or percent == 100
        return (
            service.ready
            and newest_ready(service)
            and service.latest_share == (100 if percent is None else percent)
            and (not everything or service.rolled_out_revision == newest)
        )

    if before is None or template(before) != template(after):
        proven = newer_than(before.created_revision if before else "")
        return Goal(what, looks_done, proven, failure=_failed_revision(proven))
    if before is after:
        # Nothing was written now, but perhaps just before. The number compared is the Knative Service's own
        # and may stay behind for good.
        return Goal(what, looks_done, _seen(after), may_settle=True, failure=_failed_revision(_always))
    # Other traffic proves itself, and a write that leaves the traffic as it is reaches nothing below.
    return Goal(what, looks_done, failure=_failed_revision(_always))


def ready_canary() -> Goal:
    """Knative: the newest revision, whatever its traffic, is ready."""
    return Goal("a ready canary", newest_ready, failure=_failed_revision(_always))


def restored(former_revision: str) -> Goal:
    """Knative: the template that replaced `former_revision`'s is ready, whatever its traffic."""
    proven = newer_than(former_revision)
    return Goal("the restored revision", newest_ready, proven, failure=_failed_revision(proven))


def traffic_on(revision: str) -> Goal:
    """Knative: everything goes to `revision`, however the newest one fares."""

    def looks_done(service: InferenceService) -> bool:
        return service.share_of(revision) == 100 and service.is_true("RoutesReady")

    return Goal(f"all traffic on {revision}", looks_done)


def rolled(before: InferenceService | None, after: InferenceService, what: str) -> Goal:
    """Standard: the Deployment has rolled to the template of `after`, and every canary has a ready pod."""

    def looks_done(service: InferenceService) -> bool:
        reported = {item["name"]: item for item in service.status.get("canaryStatuses", [])}
        wanted = {item["predictor"]["name"]: item["trafficPercent"] for item in after.canaries}
        return (
            service.ready
            and set(reported) == set(wanted)
            and all(
                reported[name].get("ready") and reported[name].get("trafficPercent") == percent
                for name, percent in wanted.items()
            )
        )

    if before is None:
        return Goal(what, looks_done, failure=_failed_deployment(_always))
    if template(before) != template(after):
        # The Deployment's number: it moves with every change of its pods.
        def moved(service: InferenceService) -> bool:
            return service.observed > before.observed

        return Goal(what, looks_done, moved, failure=_failed_deployment(moved))
    if before is after:
        return Goal(what, looks_done, _seen(after), may_settle=True, failure=_failed_deployment(_always))
    return Goal(what, looks_done, failure=_failed_deployment(_always))


def newest_ready(service: InferenceService) -> bool:
    return bool(service.created_revision) and service.created_revision == service.ready_revision


def newer_than(revision: str) -> Judge:
    """Whether a revision was created after `revision`."""
    return lambda service: service.created_revision not in ("", revision)


def _always(service: InferenceService) -> bool:
    return True


def _seen(written: InferenceService) -> Judge:
    return lambda service: service.observed >= written.generation


def _failed_revision(current: Judge) -> Callable[[InferenceService], str]:
    """The message of a failed revision, unless it is of an older one than is waited for."""

    def failure(service: InferenceService) -> str:
        for condition in service.conditions.values():
            if condition.status == "False" and condition.reason == "RevisionFailed" and current(service):
                return "; ".join(part for part in (str(condition), service.load_failure) if part)
        return ""

    return failure


def _failed_deployment(current: Judge) -> Callable[[InferenceService], str]:
    def failure(service: InferenceService) -> str:
        for condition in service.conditions.values():
            if condition.status == "False" and condition.reason in DEPLOYMENT_FAILURES and current(service):
                return "; ".join(part for part in (str(condition), service.load_failure) if part)
        return ""

    return failure
