"""Waiting until the cluster has done what was written, and saying meanwhile what is waited for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from errors import NotReachedError, RolloutError, UnavailableError
from inference_service import InferenceService

if TYPE_CHECKING:
    from cluster import Cluster


@dataclass(frozen=True)
class Patience:
    """How long one wait may take, how often it looks, and how long a status without proof must look done. Seconds."""

    timeout: float = 1800.0
    poll: float = 2.0
    settle: float = 10.0


@dataclass(frozen=True)
class Goal:
    """A state of the InferenceService that is waited for.

    `looks_done` judges the status as it stands, which may still be the one of before the write. `proven` tells
    whether it is of after it: a new revision's name, other traffic, a higher generation. Without proof a status
    that has looked done for Patience.settle is believed: some writes change nothing below, and prove nothing.
    """

    what: str
    looks_done: Callable[[InferenceService], bool]
    proven: Callable[[InferenceService], bool] = field(default=lambda service: True)
    may_settle: bool = False
    failure: Callable[[InferenceService], str] = field(default=lambda service: "")


class Progress:
    """Lines on stdout or another stream, each said once until something else was said.

    A stream that fails is given up, as `failure` tells: no line is worth a rollback that does not happen. One whose
    reader is there and does not read is waited for.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream, self._last = stream or sys.stdout, ""
        self.failure = ""

    def say(self, line: str) -> None:
        if line != self._last:
            try:
                print(line, file=self._stream, flush=True)
            except OSError as error:
                self.failure = error.strerror or str(error)
                # What stayed in the buffer would fail once more when the process ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        self._last = line


def wait_for(cluster: Cluster, goal: Goal, patience: Patience, progress: Progress) -> InferenceService:
    """Returns the InferenceService at its goal; NotReachedError if it fails, disappears or takes too long."""
    deadline = time.monotonic() + patience.timeout
    done_since: float | None = None
    uid = ""
    state = "the API has not been reached"
    while True:
        try:
            service = cluster.get()
        except UnavailableError as error:
            # A control plane that restarts is no reason to leave a rollout half way.
            state, done_since = str(error), None
        else:
            if service is None or service.deleting or (uid and service.uid != uid):
                raise NotReachedError(f"{cluster.name} was deleted while waiting for {goal.what}")
            uid = service.uid
            if failure := goal.failure(service):
                raise NotReachedError(f"{goal.what}: {failure}")
            if not goal.looks_done(service):
                state, done_since = describe(service), None
            elif goal.proven(service):
                return service
            else:
                done_since = done_since or time.monotonic()
                if goal.may_settle and time.monotonic() - done_since >= patience.settle:
                    return service
                state = f"the status does not tell yet that the last change was seen; {describe(service)}"
        if time.monotonic() >= deadline:
            raise NotReachedError(f"{goal.what}: not reached after {patience.timeout:g} s; {state}")
        progress.say(f"waiting for {goal.what}: {state}")
        time.sleep(patience.poll)


def wait_gone(cluster: Cluster, patience: Patience, progress: Progress) -> None:
    """Until the API has no such object any more, its finalizers included."""
    deadline = time.monotonic() + patience.timeout
    while (service := cluster.retry(cluster.get)) is not None:
        if not service.deleting:
            raise RolloutError(f"somebody created {cluster.name} anew while it was being deleted")
        finalizers = ", ".join(service.document["metadata"].get("finalizers", [])) or "none"
        if time.monotonic() >= deadline:
            raise RolloutError(
                f"{cluster.name} is not gone after {patience.timeout:g} s; finalizers left: {finalizers}"
            )
        progress.say(f"waiting until {cluster.name} is gone; finalizers: {finalizers}")
        time.sleep(patience.poll)


def describe(service: InferenceService) -> str:
    """One line: where the traffic goes, which revisions there are, and what is not ready and why."""
    parts = [shares_line(service)]
    if service.created_revision and service.created_revision != service.ready_revision:
        parts.append(f"{service.created_revision} is not ready")
    if service.mode == "Standard":
        for canary in service.status.get("canaryStatuses", []):
            parts.append(f"canary {canary['name']} {'ready' if canary.get('ready') else 'not ready'}")
    parts += [str(trouble) for trouble in list(service.troubles())[:2]]
    if service.load_failure:
        parts.append(service.load_failure)
    if not service.conditions:
        parts.append("no controller has reported a status yet")
    return "; ".join(part for part in parts if part)


def shares_line(service: InferenceService) -> str:
    """`a 90 %, b 10 %`: the revisions that get traffic."""
    revisions = dict.fromkeys(target.revision for target in service.traffic)
    return ", ".join(f"{revision} {service.share_of(revision)} %" for revision in revisions)
