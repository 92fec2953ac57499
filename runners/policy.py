"""What the engine does next, and for whom: the whole policy, in the order in which it is applied.

1. The first audio of a stream, the oldest first.
2. Audio whose listener would run dry before it is made, the soonest first, and what has waited for too long.
3. New utterances, then decoding: of these comes the audio.
4. Streams that have audio ahead of their listener, and requests without a listener.

Between tenants: whoever has less of the engine begins first, and is not kept from its first audio by what presses for
one who has more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runners.pace import Pace
from runners.sequence import Job, Utterance

FIRST, PRESSING, AHEAD, BUFFERED = range(4)


@dataclass(frozen=True, order=True)
class Urgency:
    kind: int
    order: tuple[float, ...]  # within the kind: what is smaller comes first

    @property
    def presses(self) -> bool:
        """It comes before new utterances and decoding."""
        return self.kind <= PRESSING


class Shares:
    """How much of the engine each tenant has: requests inside, and those of them that are decoded."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._inside = Counter(job.request.tenant for job in jobs)
        self._live = Counter(job.request.tenant for job in jobs if job.live)
        self._least = min((self._inside[job.request.tenant] for job in jobs if job.waits), default=math.inf)

    def inside(self, tenant: str) -> int:
        return self._inside[tenant]

    def live(self, tenant: str) -> int:
        return self._live[tenant]

    def yields(self, tenant: str) -> bool:
        """Whether it has clearly more than somebody who still waits for the first audio."""
        return self._inside[tenant] > self._least + 1

    def yields_to(self, tenant: str, newcomer: str) -> bool:
        """Whether it would, had `newcomer` one more request."""
        return self._inside[tenant] > self._inside[newcomer] + 2


@dataclass(frozen=True)
class Policy:
    """`low_water_seconds`: how much audio a listener shall have ahead when the next is ready. `patience_seconds`: how
    long any audio waits. `batch_seconds`: how long a batch may take; one alone may take longer. With 0 all audio is
    made alone, which costs nothing on a CPU and keeps it the same to the bit in any company."""

    low_water_seconds: float
    patience_seconds: float
    batch_seconds: float

    def urgency(self, utterance: Utterance, frames: int, now: float, pace: Pace, shares: Shares) -> Urgency:
        """Of audio that could be made now, in `frames` mel frames; `now`: monotonic seconds."""
        job = utterance.job
        if job.request.stream and job.samples_sent == 0:
            return Urgency(FIRST, (shares.inside(job.request.tenant), job.submitted_at))
        slack = self.patience_seconds - (now - utterance.ready_at)
        if job.request.stream:
            slack = min(slack, job.seconds_ahead - pace.seconds(frames) - self.low_water_seconds)
        if slack <= (-self.patience_seconds if shares.yields(job.request.tenant) else 0):
            return Urgency(PRESSING, (slack,))
        return Urgency(AHEAD, (job.seconds_ahead,)) if job.request.stream else Urgency(BUFFERED, (job.submitted_at,))

    def batch(self, ready: Sequence[tuple[Urgency, int]], pace: Pace) -> list[int]:
        """Which of the ready turns, given by urgency and frames, are made together: the most urgent, and as many of the
        next as time allows. What can wait is never made together with what cannot."""
        ranked = sorted(range(len(ready)), key=lambda index: ready[index][0])
        chosen, frames = ranked[:1], ready[ranked[0]][1]
        for index in ranked[1:]:
            urgency, more = ready[index]
            if urgency.presses != ready[chosen[0]][0].presses or pace.seconds(frames + more) >= self.batch_seconds:
                break
            chosen.append(index)
            frames += more
        return chosen


def start_order(utterance: Utterance, patience_seconds: float, shares: Shares) -> tuple[float, float]:
    """The order in which utterances begin: those of the tenant that has fewest of them under way, and when each was
    wanted."""
    return shares.live(utterance.job.request.tenant), _wanted_at(utterance, patience_seconds)


def _wanted_at(utterance: Utterance, patience_seconds: float) -> float:
    """A text's first one at once; a later one when its listener runs dry, or some time after the one before. So a long
    text keeps nobody waiting for long, and nobody keeps it."""
    job = utterance.job
    if utterance.index == 0:
        return job.submitted_at
    if job.request.stream and job.runs_dry_at is not None:
        return job.runs_dry_at
    return job.decoded_at + patience_seconds
