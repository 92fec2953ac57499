"""The event loop: arrivals, the activator's queue, pods that start and end, and the autoscaler's tick."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.scaling.kpa import TICK, Decider, Decision, KpaSettings, Scaler, WindowAverage
from benchmarks.scaling.pods import Outcome, Pod, Request, ServiceTimes

QUEUE_PER_POD = 10  # Knative's queue-proxy holds this many times containerConcurrency


@dataclass(frozen=True)
class ColdStart:
    """Seconds from a pod's creation to ready, each part even between its two bounds."""

    pull: tuple[float, float] = (0.0, 0.0)  # of the image, with the node it may have to wait for
    load: tuple[float, float] = (0.0, 0.0)  # of the weights
    warm_up: tuple[float, float] = (0.0, 0.0)

    def draw(self, rng: random.Random) -> float:
        return sum(rng.uniform(low, high) for low, high in (self.pull, self.load, self.warm_up))


@dataclass(frozen=True)
class Scenario:
    """One revision and what is known of its pods.

    `timeout`: the revision's, seconds of wait in the activator and again of service in a pod. `queue_capacity`: what
    the activator holds. `pod_limit`: requests that a pod itself takes before it refuses (429).
    """

    kpa: KpaSettings
    times: ServiceTimes
    cold_start: ColdStart
    timeout: float = 300.0
    queue_capacity: int = 10_000
    pod_limit: int = 64
    seed: int = 0


@dataclass(frozen=True)
class Sample:
    """The state at the end of one tick."""

    time: float
    desired: int
    ready: int
    pods: int  # that cost: starting, ready and draining
    queue: int
    concurrency: float  # over the last second
    panicking: bool


@dataclass
class Run:
    """What a simulation did."""

    requests: list[Request]
    samples: list[Sample] = field(default_factory=list)
    pod_seconds: float = 0.0
    pods_started: int = 0
    max_queue: int = 0
    max_pods: int = 0


def simulate(scenario: Scenario, arrivals: Iterable[tuple[float, float]], duration: float) -> Run:
    """Run `arrivals` (time, seconds of audio; in order of time) for `duration` seconds, and on until the last one has
    ended. Pods are paid for until `duration`."""
    return _Simulation(scenario, [Request(time, audio) for time, audio in arrivals], duration).run()


class _Simulation:
    def __init__(self, scenario: Scenario, requests: list[Request], duration: float) -> None:
        self.scenario, self.kpa = scenario, scenario.kpa
        self.duration = duration
        self.result = Run(requests)
        self.rng = random.Random(scenario.seed)
        self.now = 0.0
        self.pods: list[Pod] = []  # in the order of their creation
        self.draining: list[Pod] = []
        self.ready: list[Pod] = []
        self.queue: deque[Request] = deque()  # at the activator
        self.desired = 0
        self.in_flight = 0
        self.open = len(requests)
        self._area = 0.0  # of concurrency over time, in this second
        self._area_at = 0.0
        self._events: list[tuple[float, int, int, Pod]] = []
        self._event_count = 0
        self._next_pod = 0  # round robin
        self._stable, self._panic = WindowAverage(self.kpa.window), WindowAverage(self.kpa.panic_window)
        self._decider, self._scaler = Decider(self.kpa), Scaler(self.kpa)
        self._decision = Decision(0, False, True)

    def run(self) -> Run:
        self._scale()
        arrivals = deque(self.result.requests)
        second = 1
        while self.now < self.duration or self.open:
            arrival = arrivals[0].arrived if arrivals else math.inf
            event = self._events[0][0] if self._events else math.inf
            limit = self.queue[0].arrived + self.scenario.timeout if self.queue else math.inf
            first = min(arrival, event, limit, second)
            if first == second:  # before what happens at the same instant: a second is over at its end
                self._second_over(second)
                second += 1
            elif first == arrival:
                self._arrive(arrivals.popleft())
            elif first == event:
                self._pod_event()
            else:
                self._go_to(limit)
                self._end(self.queue.popleft(), Outcome.TIMED_OUT)
        for pod in self.pods + self.draining:
            self._pay(pod, self.now)
        return self.result

    # -- requests --------------------------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        self._go_to(request.arrived)
        request.cold = not self.ready
        self.in_flight += 1
        if self._decision.activator_in_path or not self.ready:
            self._hold(request)
        else:
            self._send_directly(request)

    def _hold(self, request: Request) -> None:
        """The activator: to a pod with room, or into the queue."""
        if not self.queue and (pod := self._pod_with_room()) is not None:
            self._enter(pod, request)
            return
        if len(self.queue) >= self.scenario.queue_capacity:
            self._end(request, Outcome.REJECTED)
            return
        self.queue.append(request)
        self._note_queue()
        if not self.pods:  # the activator reports the first request at once, and the autoscaler decides at once
            self._decide(1.0, 1.0)

    def _send_directly(self, request: Request) -> None:
        """Past the activator: pods in turn, full or not; each has a queue of its own."""
        pod = self.ready[self._next_pod % len(self.ready)]
        self._next_pod += 1
        limit = self.kpa.container_concurrency
        if not limit or pod.streams < limit:
            self._enter(pod, request)
        elif len(pod.waiting) < QUEUE_PER_POD * limit:
            pod.waiting.append(request)
            self._note_queue()
        else:
            self._end(request, Outcome.REJECTED)

    def _pod_with_room(self) -> Pod | None:
        """As the activator chooses: the better of two at random without a hard limit, the first one with room under a
        small limit, else in turn."""
        limit, ready = self.kpa.container_concurrency, self.ready
        if not ready:
            return None
        if not limit:
            return min(self.rng.sample(ready, min(2, len(ready))), key=lambda pod: pod.streams)
        start = self._next_pod % len(ready) if limit > 3 else 0
        for offset in range(len(ready)):
            pod = ready[(start + offset) % len(ready)]
            if pod.streams < limit:
                self._next_pod = start + offset + 1
                return pod
        return None

    def _enter(self, pod: Pod, request: Request) -> None:
        self._work(pod)
        if pod.streams >= self.scenario.pod_limit:
            self._end(request, Outcome.REJECTED)
            return
        pod.enter(self.now, request)
        self._schedule(pod)

    def _end(self, request: Request, outcome: Outcome) -> None:
        request.end(self.now, outcome)
        self._ended(1)

    def _ended(self, count: int) -> None:
        self.in_flight -= count
        self.open -= count

    def _note_queue(self) -> None:
        self.result.max_queue = max(self.result.max_queue, self._waiting())

    def _waiting(self) -> int:
        return len(self.queue) + sum(len(pod.waiting) for pod in self.pods)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _pod_event(self) -> None:
        time, _, version, pod = heapq.heappop(self._events)
        if pod.gone or version != pod.version:
            return
        self._go_to(time)
        if not pod.ready and not pod.draining:
            pod.ready = True
            self.ready.append(pod)
        self._work(pod)
        self._refill(pod)
        self._schedule(pod)
        if pod.draining and not pod.streams and not pod.waiting:
            self.draining.remove(pod)
            self._pay(pod, self.now)

    def _work(self, pod: Pod) -> None:
        before = pod.streams
        pod.work(self.now)
        self._ended(before - pod.streams)

    def _refill(self, pod: Pod) -> None:
        limit = self.kpa.container_concurrency
        while pod.waiting and (not limit or pod.streams < limit):
            waiting = pod.waiting.popleft()
            if self.now - waiting.arrived > self.scenario.timeout:
                self._end(waiting, Outcome.TIMED_OUT)
            else:
                self._enter(pod, waiting)
        while self.queue and (target := self._pod_with_room()) is not None:
            self._enter(target, self.queue.popleft())

    def _schedule(self, pod: Pod) -> None:
        pod.version += 1
        if (time := pod.next_event()) is not None:
            self._push(time, pod)

    def _push(self, time: float, pod: Pod) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time, self._event_count, pod.version, pod))

    def _create(self) -> None:
        ready_at = self.now + self.scenario.cold_start.draw(self.rng)
        pod = Pod(self.scenario.times, self.now, ready_at, self.scenario.timeout)
        self.pods.append(pod)
        self.result.pods_started += 1
        self._push(ready_at, pod)

    def _remove(self) -> None:
        """As a ReplicaSet does: one that is not ready, else the youngest. Its streams finish."""
        starting = [pod for pod in self.pods if not pod.ready]
        pod = (starting or self.ready)[-1]
        self.pods.remove(pod)
        if pod.ready:
            self.ready.remove(pod)
        pod.ready, pod.draining = False, True
        if pod.streams or pod.waiting:
            self.draining.append(pod)
        else:
            self._pay(pod, self.now)

    def _pay(self, pod: Pod, until: float) -> None:
        pod.gone = True
        self.result.pod_seconds += max(0.0, min(until, self.duration) - pod.created)

    # -- time and the autoscaler -----------------------------------------------------------------------------------

    def _go_to(self, time: float) -> None:
        """Let time pass. Called before in_flight changes: the area under it is what the autoscaler sees."""
        self.now = time
        self._area += self.in_flight * (time - self._area_at)
        self._area_at = time

    def _second_over(self, second: int) -> None:
        self._go_to(float(second))
        concurrency, self._area = self._area, 0.0
        if self.pods or self.draining or self.in_flight:  # with neither there is nobody to report
            self._stable.record(second - 1, concurrency)
            self._panic.record(second - 1, concurrency)
        if second % TICK == 0:
            self._decide(self._stable.average(second - 1), self._panic.average(second - 1))
            self._sample(concurrency)

    def _decide(self, stable: float, panic: float) -> None:
        self._decision = self._decider.decide(self.now, stable, panic, len(self.ready))
        self._scale()

    def _scale(self) -> None:
        self.desired = self._scaler.replicas(self.now, self._decision, len(self.pods), len(self.ready))
        while len(self.pods) < self.desired:
            self._create()
        while len(self.pods) > self.desired:
            self._remove()
        self.result.max_pods = max(self.result.max_pods, len(self.pods) + len(self.draining))

    def _sample(self, concurrency: float) -> None:
        self.result.samples.append(
            Sample(
                self.now,
                self.desired,
                len(self.ready),
                len(self.pods) + len(self.draining),
                self._waiting(),
                concurrency,
                self._decision.panicking,
            )
        )
