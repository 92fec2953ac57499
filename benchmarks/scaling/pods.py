"""A pod of the revision: streams that share one engine and slow each other down, as measured service times say."""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left
from collections import deque
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

TABLES = Path(__file__).parent / "service_times"
_ROUNDING = 1e-6  # seconds, and shares of a first audio: two clocks never agree to the last bit


@dataclass(frozen=True)
class Load:
    """Service times with `streams` at once in one pod.

    `ttfa_s`: request to first audio, seconds. `rtf`: seconds per second of audio of one stream after its first audio.
    """

    streams: int
    ttfa_s: float
    rtf: float


@dataclass(frozen=True)
class ServiceTimes:
    """What one pod needs, by load. `blocks_s`: seconds of audio in the first, second, ... block that a stream sends;
    the last one stands for all that follow."""

    label: str
    source: str
    blocks_s: tuple[float, ...]
    loads: tuple[Load, ...]

    def __post_init__(self) -> None:
        counts = [load.streams for load in self.loads]
        if not counts or counts[0] != 1 or counts != sorted(set(counts)):
            raise ValueError("service times need loads in ascending order, beginning with 1 stream")
        positive = [*self.blocks_s, *(value for load in self.loads for value in (load.ttfa_s, load.rtf))]
        if not self.blocks_s or min(positive) <= 0:
            raise ValueError("service times must be positive")

    @classmethod
    def read(cls, name: str) -> ServiceTimes:
        """A shipped table by name, or a JSON file by path. Raises OSError, ValueError, KeyError, TypeError."""
        path = TABLES / f"{name}.json"
        values = json.loads((path if path.is_file() else Path(name)).read_text("utf-8"))
        loads = tuple(Load(**load) for load in values["loads"])
        return cls(values["label"], values["source"], tuple(values["blocks_s"]), loads)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    def block(self, number: int) -> float:
        """Seconds of audio in block `number` of a stream, from 0."""
        return self.blocks_s[min(number, len(self.blocks_s) - 1)]

    def at(self, streams: int) -> Load:
        """Between two measured loads, and beyond the last one, on a straight line; never better than the last one."""
        counts = [load.streams for load in self.loads]
        if len(counts) == 1:  # nothing is known of sharing: the engine's work is divided evenly
            return Load(streams, self.loads[0].ttfa_s * streams, self.loads[0].rtf * streams)
        upper = min(max(1, bisect_left(counts, streams)), len(counts) - 1)
        low, high = self.loads[upper - 1], self.loads[upper]
        share = (streams - low.streams) / (high.streams - low.streams)
        ttfa = low.ttfa_s + share * (high.ttfa_s - low.ttfa_s)
        rtf = low.rtf + share * (high.rtf - low.rtf)
        if streams > high.streams:
            return Load(streams, max(ttfa, high.ttfa_s), max(rtf, high.rtf))
        return Load(streams, ttfa, rtf)


class Outcome(Enum):
    """How a request ends: exactly one of these."""

    SERVED = "served"
    REJECTED = "rejected"  # the queue was full
    TIMED_OUT = "timed out"  # waited too long, or was cut by the revision's timeout


class Request:
    """One request and what happened to it. Times are seconds of the simulation."""

    __slots__ = ("arrived", "audio", "blocks", "cold", "dry", "ended", "entered", "first_audio", "made", "outcome")

    def __init__(self, arrived: float, audio: float) -> None:
        self.arrived = arrived
        self.audio = audio  # length, seconds
        self.cold = False  # no pod was ready when it came
        self.dry = False  # its listener ran dry
        self.entered: float | None = None  # given to a pod
        self.first_audio: float | None = None
        self.blocks = 0  # sent
        self.made = 0.0  # seconds of audio in them
        self.ended: float | None = None
        self.outcome: Outcome | None = None

    def end(self, now: float, outcome: Outcome) -> None:
        assert self.outcome is None, "a request ends once"
        self.ended, self.outcome = now, outcome


class Pod:
    """Serves its streams side by side. The progress of all of them is kept in two clocks, so that an event costs
    little however many there are: `_firsts` runs in first audios, `_audio` in seconds of audio, per stream."""

    def __init__(self, times: ServiceTimes, created: float, ready_at: float, timeout: float) -> None:
        self.created = created
        self.ready_at = ready_at
        self.ready = False
        self.draining = False
        self.gone = False
        self.version = 0  # of its next event: an older one is void
        self.streams = 0
        self.waiting: deque[Request] = deque()  # in its own queue, only when requests come without the activator
        self._times = times
        self._timeout = timeout
        self._loads: dict[int, Load] = {}
        self._now = ready_at
        self._firsts = self._audio = 0.0
        self._silent: deque[tuple[float, Request]] = deque()  # by first-audio clock
        self._speaking: list[tuple[float, int, Request]] = []  # heap by audio clock, of the next block
        self._entered: deque[Request] = deque()
        self._count = 0

    def enter(self, now: float, request: Request) -> None:
        self._advance(now)
        request.entered = now
        self.streams += 1
        self._silent.append((self._firsts + 1, request))
        self._entered.append(request)

    def work(self, now: float) -> None:
        """Everything that is due by `now`: first audios, further blocks, and streams that the timeout cuts."""
        self._advance(now)
        while self._silent and (
            self._silent[0][1].outcome is not None or self._silent[0][0] <= self._firsts + _ROUNDING
        ):
            request = self._silent.popleft()[1]
            if request.outcome is None:
                request.first_audio = now
                self._speak(now, request)
        while self._speaking and (
            self._speaking[0][2].outcome is not None or self._speaking[0][0] <= self._audio + _ROUNDING
        ):
            request = heapq.heappop(self._speaking)[2]
            if request.outcome is None:
                self._speak(now, request)
        while self._entered and (
            self._entered[0].outcome is not None or self._deadline(self._entered[0]) <= now + _ROUNDING
        ):
            request = self._entered.popleft()
            if request.outcome is None:
                self._leave(now, request, Outcome.TIMED_OUT)

    def next_event(self) -> float | None:
        """When `work` has to be called next, if no stream enters before."""
        times = []
        load = self._load()
        if self._silent:
            times.append(self._now + max(0.0, self._silent[0][0] - self._firsts) * load.ttfa_s)
        if self._speaking:
            times.append(self._now + max(0.0, self._speaking[0][0] - self._audio) * load.rtf)
        if self._entered:
            times.append(self._deadline(self._entered[0]))
        return max(self._now, min(times)) if times else None

    def _advance(self, now: float) -> None:
        passed = now - self._now
        self._now = now
        if passed <= 0 or not self.streams:
            return
        load = self._load()
        self._firsts += passed / load.ttfa_s
        self._audio += passed / load.rtf

    def _load(self) -> Load:
        if self.streams not in self._loads:
            self._loads[self.streams] = self._times.at(max(1, self.streams))
        return self._loads[self.streams]

    def _deadline(self, request: Request) -> float:
        assert request.entered is not None
        return request.entered + self._timeout

    def _speak(self, now: float, request: Request) -> None:
        """Send a block, and begin the next one."""
        assert request.first_audio is not None
        if now - request.first_audio > request.made + _ROUNDING and request.blocks:
            request.dry = True
        request.made += self._times.block(request.blocks)
        request.blocks += 1
        left = request.audio - request.made
        if left <= _ROUNDING:
            self._leave(now, request, Outcome.SERVED)
            return
        self._count += 1
        due = self._audio + min(left, self._times.block(request.blocks))
        heapq.heappush(self._speaking, (due, self._count, request))

    def _leave(self, now: float, request: Request, outcome: Outcome) -> None:
        request.end(now, outcome)
        self.streams -= 1
