"""What the engine tells Prometheus of its load, for autoscaling and alerts."""

from __future__ import annotations

import math
from typing import Final

from prometheus_client import Gauge, Histogram

_MODE: Final = "mostrecent"
REQUESTS = Gauge("cosyserve_engine_requests", "Requests inside the engine.", multiprocess_mode=_MODE)
LIVE = Gauge("cosyserve_engine_live_utterances", "Utterances decoded together.", multiprocess_mode=_MODE)
QUEUE = Gauge("cosyserve_queue_depth", "Requests inside the engine without audio yet.", multiprocess_mode=_MODE)
HEADROOM = Gauge(
    "cosyserve_realtime_headroom",
    "Audio seconds made per second of work, over the requests inside: below 1 listeners run dry.",
    multiprocess_mode=_MODE,
)
SYNTHESIS_BATCH = Histogram(
    "cosyserve_synthesis_batch", "Utterances whose audio was made together.", buckets=(1, 2, 4, 8, 16, 32)
)

MEMORY_SECONDS = 10.0  # of work, after which a rate counts for 1/e


class AudioRate:
    """Seconds of audio that the engine makes per second of work, as an exponential average.

    Work is the time in which the device thread computes, so that the rate does not fall while nobody asks. Each piece
    of audio is a sample of the rate, audio over the work since the piece before, weighted by that work: hops that come
    close together and one long utterance count alike.
    """

    def __init__(self) -> None:
        self.per_second = 0.0  # no audio yet
        self._work = 0.0

    def worked(self, seconds: float) -> None:
        self._work += seconds

    def made(self, seconds: float) -> None:
        if seconds <= 0 or self._work <= 0:
            return
        weight = 1.0 if not self.per_second else 1 - math.exp(-self._work / MEMORY_SECONDS)
        self.per_second += weight * (seconds / self._work - self.per_second)
        self._work = 0.0
