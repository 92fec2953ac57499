"""Who may come in: a request that could not begin in time, or would leave listeners dry, is refused at once, before any
work for it.

What a newcomer will wait is what those before it waited lately. Tenants take turns and have like shares: one that
floods the engine is refused while another is still let in.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from runners.gauges import AudioRate
from runners.pace import Mean, Pace, Spread
from runners.policy import Shares
from runners.request import RequestError, SpeechRequest
from runners.sequence import Job
from runners.stages import DECODE

_TOKENS, _FRAMES = 25, 50  # of speech and of mel, per second of audio
_USED = 0.8  # of the engine's time by listeners: hops do not come evenly, nor does each take as long
_STEPS = 250  # of ten seconds of speech
_ALWAYS = 2  # listeners who are never too many: where so few fit, a moment's rate says too little to refuse by


class Admission:
    """`max_ttfa_seconds`: what a newcomer may have to wait for its first audio (a stream) or for a slot in the decoder
    (a whole answer, of which nobody hears a beginning); None: any time, and any number of listeners. `max_live`: the
    decoder's slots. `pace`: of synthesis. `rate`: of all work, as it was measured lately.

    Nobody waits in vain for an engine that is too slow for that: whoever has nobody before it is let in.
    """

    def __init__(self, max_ttfa_seconds: float | None, max_live: int, pace: Pace, rate: AudioRate) -> None:
        self._bound, self._slots, self._pace, self._rate = max_ttfa_seconds, max_live, pace, rate
        self.forget()

    def forget(self) -> None:
        """What was measured so far."""
        self._step = Mean(_STEPS)  # seconds of a decode step, whose tokens all listeners share
        self._first = Spread()  # seconds to the first audio, had nobody waited before
        self._each = Spread()  # seconds from one first audio to the next, while there is a line
        self._turnover = Spread()  # seconds in which one of the slots becomes free
        self._heard_at = 0.0

    def check(self, request: SpeechRequest, jobs: Sequence[Job]) -> None:
        """Whether `request` may join `jobs`. Raises RequestError `overloaded`, with the seconds after which it is worth
        another try."""
        if self._bound is None or request.continues:
            return
        if request.stream:
            # Who has yet to write costs nothing.
            listened = [job for job in jobs if job.request.stream and not job.text_wanted]
            self._check_listeners(request.tenant, listened)
        wait = self._until_heard(request, jobs) if request.stream else self._until_slot(request, jobs)
        if wait <= self._bound:
            return
        retry = math.ceil(wait - self._bound)
        what = "be heard" if request.stream else "begin"
        message = f"This would {what} in {wait:.1f} s, and {self._bound:g} s is the limit. Try again in {retry} s."
        raise RequestError("overloaded", message, 429, retry_after=retry)

    def place(self, request: SpeechRequest, jobs: Sequence[Job]) -> int:
        """The place, from 1, of a stream that joins `jobs` among those that wait for their first audio."""
        return _place(request.tenant, [job for job in jobs if job.waits and job.request.stream], Shares(jobs))

    def heard(self, job: Job) -> None:
        """The first audio of `job` was sent just now."""
        if not job.request.stream:
            return
        now = time.monotonic()
        if job.place > 1:
            self._each.saw(now - max(self._heard_at, job.submitted_at))
        self._first.saw(max(0.0, now - job.submitted_at - self._line(job.place)))
        self._heard_at = now

    def left(self, seconds: float, live: int) -> None:
        """A slot has become free that was taken for `seconds`, as one of `live`."""
        self._turnover.saw(seconds / live)

    def on_stage(self, stage: str, began: float, ended: float, jobs: Sequence[Any]) -> None:
        """As a listener of the stages."""
        if stage == DECODE:
            self._step.saw(ended - began)

    def _check_listeners(self, tenant: str, listened: Sequence[Job]) -> None:
        """Raises RequestError `overloaded` where one more would leave listeners dry, unless it is a tenant's share."""
        measured = self._most_listeners()
        most = max(measured, _ALWAYS)
        tenants = {job.request.tenant for job in listened} | {tenant}
        own = sum(job.request.tenant == tenant for job in listened)
        if len(listened) + 1 <= most or own + 1 <= most / len(tenants) or measured < 1:
            return
        retry = max(1, math.ceil(self._turnover.high))
        message = f"{int(most)} streams are as many as can be spoken without gaps. Try again in {retry} s."
        raise RequestError("overloaded", message, 429, retry_after=retry)

    def _most_listeners(self) -> float:
        """For how many at once audio can be made as fast as it is heard; below 1, not even for one.

        As many as the rate says, which rises with those who share a step; or as they would by what steps cost now: a
        few listeners do not show how many a large engine can feed. Not by what a moment costs, since whoever is let in
        stays for longer; and well below what is possible, since little time is lost by it: the engine works ahead for
        those that it has.
        """
        synthesis = self._pace.usual_seconds(_FRAMES)
        if not synthesis:
            return math.inf
        return _USED * max(self._rate.per_second, (1 - _TOKENS * self._step.value) / synthesis)

    def _line(self, place: int) -> float:
        """What those before a place take; before that was ever seen, as much as each takes alone."""
        return (place - 1) * (self._first.high if self._each.mean is None else self._each.mean)

    def _until_heard(self, request: SpeechRequest, jobs: Sequence[Job]) -> float:
        place = self.place(request, jobs)
        if place == 1:
            return 0.0
        now = time.monotonic()
        # Who still waits tells of a slower engine earlier than who has been heard.
        ages = [now - job.submitted_at - self._line(job.place) for job in jobs if job.waits and job.request.stream]
        return self._line(place) + max(self._first.high, *ages)

    def _until_slot(self, request: SpeechRequest, jobs: Sequence[Job]) -> float:
        waiting = [job for job in jobs if job.waits_for_slot]
        free = self._slots - sum(job.live for job in jobs)
        place = _place(request.tenant, waiting, Shares(jobs)) - free
        return place * self._turnover.high if place > 1 else 0.0


def _place(tenant: str, waiting: Sequence[Job], shares: Shares) -> int:
    """Of a newcomer of `tenant` when tenants take turns: its own before it, and of each other one as many, but for
    those that have more of the engine and yield."""
    counts = Counter(job.request.tenant for job in waiting)
    turn = counts.pop(tenant, 0) + 1
    return turn + sum(min(count, turn) for other, count in counts.items() if not shares.yields_to(other, tenant))
