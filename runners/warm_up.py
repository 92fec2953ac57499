"""Speech before the first request: no user pays for first calls, and the model's precision is known to hold."""

from __future__ import annotations

from dataclasses import replace

from runners.frames import FrameKind
from runners.modes import Plan, SegmentPlan, resolve, silent_voice
from runners.request import SpeechRequest
from runners.scheduler import NOT_FINITE, Scheduler

_TEXT = "one two three"
_TOKENS = 60  # enough for a first hop, a later one is the same code


async def warm_up(scheduler: Scheduler) -> None:
    """Speak once, streamed and whole.

    Raises RuntimeError, and FloatingPointError where the model's precision does not hold its values.
    """
    await scheduler.capture()
    model = scheduler.model
    name = next(iter(sorted(model.presets)), None)
    request = SpeechRequest(segments=(_TEXT,), voice=name, conditioning=None if name else silent_voice(model.config))
    spoken = resolve(request, model)
    # Given tokens fix the work of the hop and the one-pass path, whatever the model says to a text.
    given = Plan((SegmentPlan((), 0, (0,) * _TOKENS),), (), spoken.prompt)
    for plan, stream in ((spoken, True), (given, False), (given, True)):
        scheduler.forget()  # all but what the last takes: its calls are none of the first
        async for frame in scheduler.admit(replace(request, stream=stream), plan).frames():
            if frame.kind is FrameKind.ERROR:
                error = frame.json()
                kind = FloatingPointError if error["code"] == NOT_FINITE else RuntimeError
                raise kind(f"warm-up failed: {error['message']}")
