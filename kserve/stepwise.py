"""The canary's way to all traffic, step by step, each step only after Prometheus has spoken for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NoReturn

from analysis import METRICS, Measurement, Prometheus, PrometheusError, Thresholds, judge
from cluster import Cluster
from errors import NotReachedError, RolloutError, StoppedError, UnavailableError
from inference_service import InferenceService
from knative import KnativeRollout, refuse_half_rolled_back, stable_revision
from manifest import Change
from waiting import Progress, shares_line


@dataclass(frozen=True)
class Plan:
    """The steps in percent, what each must show, and how long it may wait for numbers. Seconds."""

    steps: tuple[int, ...] = (5, 25, 50, 100)
    interval: float = 300.0
    check: float = 15.0
    min_requests: float = 50.0
    patience: float = 1800.0
    stop_without_data: bool = False
    skipped: tuple[str, ...] = ()
    limits: Thresholds = field(default_factory=Thresholds)

    @property
    def needed(self) -> tuple[str, ...]:
        return ("requests", *(name for name in METRICS if name not in self.skipped))


@dataclass(frozen=True)
class _Step:
    percent: int
    canary: str
    stable: str


class StepwiseRollout:
    """Analyses a canary under way, moves it on, and promotes it or rolls it back."""

    def __init__(
        self, cluster: Cluster, rollout: KnativeRollout, prometheus: Prometheus, plan: Plan, progress: Progress
    ) -> None:
        self._cluster, self._rollout, self._prometheus = cluster, rollout, prometheus
        self._plan, self._progress = plan, progress
        self._baseline = Measurement()

    def start(self, change: Change, percent: int, force: bool) -> None:
        """Starts a canary and runs it; rolled back too if its revision does not become ready."""
        self._move(change, percent, force)
        self.run()

    def run(self) -> None:
        """Returns when the canary is promoted; RolloutError when it was rolled back, StoppedError when it stands."""
        live = self._cluster.require()
        refuse_half_rolled_back(live)
        if live.percent is None:
            if live.settled:
                self._progress.say(f"no canary is under way: {shares_line(live)}")
                return
            raise RolloutError("no canary is under way: start one with canary")
        now = live.percent
        for percent in [now] * (now > 0) + [step for step in self._plan.steps if step > now]:
            service = self._move(None, percent)
            if reasons := self._observe(service, percent):
                self._fall_back(reasons)
        self._rollout.promote()

    def _move(self, change: Change | None, percent: int, force: bool = False) -> InferenceService:
        try:
            return self._rollout.canary(change, percent, force)
        except (NotReachedError, UnavailableError) as error:
            self._fall_back([str(error)])

    def _observe(self, service: InferenceService, percent: int) -> list[str]:
        """Why the step failed; empty if it has passed."""
        step = _Step(percent, service.created_revision, stable_revision(service))
        began = time.monotonic()
        while True:
            left = self._plan.interval - (time.monotonic() - began)
            time.sleep(left if 0 < left < self._plan.check else self._plan.check)
            seconds = time.monotonic() - began
            try:
                if lost := self._lost(step):
                    return [lost]
                canary = self._prometheus.measure(step.canary, seconds)
                stable = self._measure_stable(step, seconds)
            except (PrometheusError, UnavailableError) as error:
                gap = str(error)
            else:
                self._progress.say(f"{percent:3d} % canary {step.canary}: {canary}")
                self._progress.say(f"      stable {step.stable}: {stable}")
                gap = self._gap(step, canary, stable)
                if not gap:
                    reasons = judge(canary, stable, self._plan.limits, self._plan.needed)
                    if reasons or seconds >= self._plan.interval:
                        return reasons
            if gap:
                self._progress.say(f"{percent:3d} % waiting for numbers: {gap}")
                if seconds >= max(self._plan.patience, self._plan.interval):
                    return self._without_data(step, gap, seconds)

    def _measure_stable(self, step: _Step, seconds: float) -> Measurement:
        """At 100 % the stable revision serves nobody; what it showed before stands for it."""
        if step.percent == 100 or not step.stable:
            return self._baseline
        measured = self._prometheus.measure(step.stable, seconds)
        if not measured.missing(self._plan.needed):
            self._baseline = measured
        return measured

    def _gap(self, step: _Step, canary: Measurement, stable: Measurement) -> str:
        """What is missing for a verdict; empty if nothing is."""
        both = [(step.canary, canary)] + [(step.stable, stable)] * (step.percent < 100)
        for revision, measured in both:
            # Fewer requests than asked for say nothing, so they hide what else is missing.
            if measured.requests is not None and measured.requests < self._plan.min_requests:
                return f"{revision} has {measured.requests:.0f} of {self._plan.min_requests:g} requests"
            if missing := measured.missing(self._plan.needed):
                return f"Prometheus has no {', '.join(missing)} of {revision}"
        return ""

    def _lost(self, step: _Step) -> str:
        """Why the canary is not what is analysed any more: broken, or changed by somebody else (then StoppedError)."""
        live = self._cluster.require()
        if live.created_revision != step.canary or live.percent != step.percent:
            raise StoppedError(
                f"somebody else changed {live.name} during the analysis: {shares_line(live)}; nothing was touched, "
                "look at it with status"
            )
        broken = [
            item for item in live.conditions.values() if item.status == "False" and item.reason == "RevisionFailed"
        ]
        return str(broken[0]) if broken else ""

    def _without_data(self, step: _Step, gap: str, seconds: float) -> list[str]:
        reason = f"no verdict after {seconds:.0f} s: {gap}"
        if self._plan.stop_without_data:
            raise StoppedError(f"{reason}; the canary stays at {step.percent} %: go on with watch, promote or rollback")
        return [reason]

    def _fall_back(self, reasons: list[str]) -> NoReturn:
        why = "; ".join(reasons)
        self._progress.say(f"rolling back: {why}")
        try:
            self._rollout.rollback()
        except KeyboardInterrupt:
            raise RolloutError(f"the canary failed ({why}), rolling back was interrupted: run rollback again") from None
        except RolloutError as error:
            raise RolloutError(
                f"the canary failed ({why}), and rolling back too: {error}; run rollback again"
            ) from None
        raise RolloutError(f"rolled back: {why}")
