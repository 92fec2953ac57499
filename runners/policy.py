"""What the engine does next, and for whom: the whole policy, in the order in which it is applied.

1. The first audio of a stream, the oldest first.
2. Audio whose listener would run dry before it is made, the soonest first, and what has waited for long.
3. New utterances, then decoding: of these comes the audio.
4. Streams that have audio ahead of their listener, and requests without a listener.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runners.pace import Pace
from runners.sequence import Job, Utterance

FIRST, PRESSING, AHEAD, BUFFERED = range(4)


@dataclass(frozen=True, order=True)
class Urgency:
    kind: int
    order: float  # within the kind: what is smaller comes first

    @property
    def presses(self) -> bool:
        """It comes before new utterances and decoding."""
        return self.kind <= PRESSING


@dataclass(frozen=True)
class Policy:
    """`low_water_seconds`: how much audio a listener shall have ahead when the next is ready. `patience`: decode steps
    that any audio waits at most. `batch_seconds`: how long a batch may take; one alone may take longer."""

    low_water_seconds: float
    patience: int
    batch_seconds: float

    def urgency(self, utterance: Utterance, frames: int, steps: int, pace: Pace) -> Urgency:
        """Of audio that could be made now, in `frames` mel frames, `steps` decode steps after the engine's start."""
        job = utterance.job
        if job.request.stream and job.samples_sent == 0:
            return Urgency(FIRST, job.submitted_at)
        slack = 1 - (steps - (utterance.ready_since or 0)) / self.patience
        if job.request.stream:
            slack = min(slack, job.seconds_ahead - pace.seconds(frames) - self.low_water_seconds)
        if slack <= 0:
            return Urgency(PRESSING, slack)
        return Urgency(AHEAD, job.seconds_ahead) if job.request.stream else Urgency(BUFFERED, job.submitted_at)

    def batch(self, ready: Sequence[tuple[Urgency, int]], pace: Pace) -> list[int]:
        """Which of the ready turns, given by urgency and frames, are made together: the most urgent, and as many of the
        next as time allows. What can wait is never made together with what cannot."""
        ranked = sorted(range(len(ready)), key=lambda index: ready[index][0])
        chosen, frames = ranked[:1], ready[ranked[0]][1]
        for index in ranked[1:]:
            urgency, more = ready[index]
            if urgency.presses != ready[chosen[0]][0].presses or pace.seconds(frames + more) > self.batch_seconds:
                break
            chosen.append(index)
            frames += more
        return chosen


def start_order(utterance: Utterance) -> tuple[int, float]:
    """The order in which utterances begin: first ones by age, then the next of those who run dry soonest. So a long
    text keeps nobody waiting."""
    job: Job = utterance.job
    if utterance.index == 0:
        return (0, job.submitted_at)
    return (1, job.seconds_ahead if job.request.stream else 0.0)
