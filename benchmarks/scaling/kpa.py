"""Knative's pod autoscaler for one revision: from the observed concurrency to a number of pods.

The rules are those of the autoscaler's documentation and of knative/serving's `pkg/autoscaler/scaling` and
`pkg/reconciler/autoscaling/kpa`. Times are seconds, concurrency is requests in flight, averaged over one second.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

TICK = 2  # seconds between two decisions
DEFAULT_TARGET = 100.0  # container-concurrency-target-default
MIN_TARGET = 0.01


@dataclass(frozen=True)
class KpaSettings:
    """The annotations `autoscaling.knative.dev/*` of a revision and what the cluster sets, under Knative's names.

    `container_concurrency`: hard limit of a pod, 0 is none. `target`: None takes the limit, or the cluster's 100.
    `max_scale` 0 is unbounded. `target_burst_capacity` -1 keeps the activator in the path, 0 only at zero pods.
    """

    container_concurrency: int = 0
    target: float | None = None
    target_utilization_percentage: float = 70.0
    window: int = 60
    panic_window_percentage: float = 10.0
    panic_threshold_percentage: float = 200.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    target_burst_capacity: float = 200.0
    min_scale: int = 0
    max_scale: int = 0
    initial_scale: int = 1
    activation_scale: int = 1
    scale_down_delay: int = 0
    scale_to_zero_pod_retention_period: float = 0.0
    scale_to_zero_grace_period: float = 30.0

    def __post_init__(self) -> None:
        """Raises ValueError for what Knative's admission refuses."""
        most = self.max_scale or math.inf
        ranges = {
            "container_concurrency": (0, 1000),
            "target": (MIN_TARGET, math.inf),
            "target_utilization_percentage": (1, 100),
            "window": (6, 3600),
            "panic_window_percentage": (1, 100),
            "panic_threshold_percentage": (110, 1000),
            "min_scale": (0, most),
            "max_scale": (0, math.inf),
            "initial_scale": (0, math.inf),
            "activation_scale": (1, most),
            "scale_down_delay": (0, 3600),
            "scale_to_zero_pod_retention_period": (0, 3600),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name.replace('_', '-')} must be from {low} to {high}, not {value}")
        if self.target_burst_capacity < 0 and self.target_burst_capacity != -1:
            raise ValueError("target-burst-capacity must be -1 or at least 0")
        for name in ("max_scale_up_rate", "max_scale_down_rate"):
            if getattr(self, name) <= 1:
                raise ValueError(f"{name.replace('_', '-')} must be above 1")

    @property
    def total_per_pod(self) -> float:
        """What one pod may have in flight, as far as the autoscaler reckons: never more than the hard limit."""
        total = self.target if self.target is not None else float(self.container_concurrency) or DEFAULT_TARGET
        return min(total, self.container_concurrency) if self.container_concurrency else total

    @property
    def target_per_pod(self) -> float:
        """What the autoscaler aims at per pod."""
        return max(MIN_TARGET, self.total_per_pod * self.target_utilization_percentage / 100)

    @property
    def panic_window(self) -> int:
        """Whole seconds, at least one."""
        return max(1, int(self.window * self.panic_window_percentage / 100))


class WindowAverage:
    """The mean of one value per second over the last `seconds`; over the seconds since the first one while younger.

    After a gap of a whole window (no pods, no requests: nothing reports) the history starts anew.
    """

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._values: deque[tuple[int, float]] = deque()
        self._sum = 0.0
        self._first = 0

    def record(self, second: int, value: float) -> None:
        if not self._values or second - self._values[-1][0] >= self.seconds:
            self._values.clear()
            self._sum = 0.0
            self._first = second
        self._values.append((second, value))
        self._sum += value

    def average(self, second: int) -> float:
        """The mean over the window that ends with `second`, 0 without values."""
        while self._values and self._values[0][0] <= second - self.seconds:
            self._sum -= self._values.popleft()[1]
        # A running sum keeps a rounding error, and an idle window must be exactly 0 to scale to zero.
        if self._sum < 1e-9:
            self._sum = 0.0
        return self._sum / min(self.seconds, second - self._first + 1) if self._values else 0.0


@dataclass(frozen=True)
class Decision:
    """`pods` wanted, before min-scale, max-scale and the rules of zero; whether the activator carries the requests."""

    pods: int
    panicking: bool
    activator_in_path: bool


class Decider:
    """The decision of every tick. It remembers the panic and the recent decisions, nothing else."""

    def __init__(self, settings: KpaSettings) -> None:
        self.settings = settings
        self._over_threshold_at: float | None = None  # not None: panicking
        self._most_in_panic = 0
        self._recent: deque[tuple[float, int]] = deque()

    def decide(self, now: float, stable: float, panic: float, ready: int) -> Decision:
        """The decision from the averages over the stable and the panic window and the count of ready pods."""
        settings = self.settings
        for_stable = math.ceil(stable / settings.target_per_pod)
        for_panic = math.ceil(panic / settings.target_per_pod)
        self._watch_threshold(now, for_panic, ready)
        pods = self._limited(for_stable, ready)
        if self._over_threshold_at is not None:
            pods = self._most_in_panic = max(pods, self._limited(for_panic, ready), self._most_in_panic)
        return Decision(
            self._delayed(now, pods), self._over_threshold_at is not None, self._activator_in_path(panic, ready)
        )

    def _watch_threshold(self, now: float, for_panic: int, ready: int) -> None:
        """Panic begins at the threshold, and ends a stable window after the last time over it."""
        if for_panic / max(1, ready) >= self.settings.panic_threshold_percentage / 100:
            self._over_threshold_at = now
        elif self._over_threshold_at is not None and now - self._over_threshold_at > self.settings.window:
            self._over_threshold_at = None
            self._most_in_panic = 0

    def _limited(self, wanted: int, ready: int) -> int:
        settings = self.settings
        most = math.ceil(max(1, ready) * settings.max_scale_up_rate)
        least = math.floor(max(1, ready) / settings.max_scale_down_rate)
        limited = min(max(wanted, least), most)
        # The annotation's rule in the autoscaler: not only from zero, whenever there is any demand.
        return max(limited, settings.activation_scale) if wanted and settings.activation_scale > 1 else limited

    def _delayed(self, now: float, pods: int) -> int:
        """scale-down-delay: the largest decision of that time."""
        if not self.settings.scale_down_delay:
            return pods
        while self._recent and self._recent[0][0] <= now - self.settings.scale_down_delay:
            self._recent.popleft()
        while self._recent and self._recent[-1][1] <= pods:  # never the largest again
            self._recent.pop()
        self._recent.append((now, pods))
        return self._recent[0][1]

    def _activator_in_path(self, panic: float, ready: int) -> bool:
        burst = self.settings.target_burst_capacity
        if ready == 0 or burst < 0:
            return True
        return burst > 0 and math.floor(ready * self.settings.total_per_pod - burst - panic) < 0


class Scaler:
    """What a decision becomes: bounds, the initial scale, and the slow way to zero."""

    def __init__(self, settings: KpaSettings) -> None:
        self.settings = settings
        self._initialised = False  # the initial scale was reached once
        self._active_since: float | None = None
        self._inactive_since: float | None = None

    def replicas(self, now: float, decision: Decision, pods: int, ready: int) -> int:
        """Pods to have from now on, when there are `pods` and so many of them are ready."""
        settings = self.settings
        if ready >= settings.initial_scale:
            self._initialised = True
        least = settings.min_scale if self._initialised else max(settings.min_scale, settings.initial_scale)
        wanted = max(decision.pods, least)
        if settings.max_scale:
            wanted = min(wanted, settings.max_scale)
        if ready and self._active_since is None:
            self._active_since = now
        if wanted:
            if self._inactive_since is not None:
                self._active_since, self._inactive_since = now, None
            return wanted
        return self._towards_zero(now, decision.activator_in_path, pods)

    def _towards_zero(self, now: float, activator_in_path: bool, pods: int) -> int:
        """The last pod goes when the revision was active for a stable window, then inactive for the retention; the
        grace period bounds how long the activator may take to get into the path, and is nothing when it is there."""
        if self._active_since is None:  # at zero, or the first pods are still starting
            return pods
        if now - self._active_since < self.settings.window:
            return 1
        if self._inactive_since is None:
            self._inactive_since = now
        grace = 0.0 if activator_in_path else self.settings.scale_to_zero_grace_period
        if now - self._inactive_since < max(grace, self.settings.scale_to_zero_pod_retention_period):
            return 1
        self._active_since = self._inactive_since = None
        return 0
