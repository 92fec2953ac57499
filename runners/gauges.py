"""What the engine tells Prometheus of its load, for autoscaling and alerts."""

from __future__ import annotations

import math
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

# There is one engine; processes that have none tell 0, and so does the sum when it was killed.
_MODE: Final = "livesum"
REQUESTS = Gauge("cosyserve_engine_requests", "Requests inside the engine.", multiprocess_mode=_MODE)
LIVE = Gauge("cosyserve_engine_live_utterances", "Utterances decoded together.", multiprocess_mode=_MODE)
QUEUE = Gauge("cosyserve_queue_depth", "Requests inside the engine without audio yet.", multiprocess_mode=_MODE)
QUEUE_WAIT = Histogram(
    "cosyserve_queue_wait_seconds",
    "Request in the engine to its first step.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)
HEADROOM = Gauge(
    "cosyserve_realtime_headroom",
    "Audio seconds made per second of work, over the requests inside: below 1 listeners run dry.",
    multiprocess_mode=_MODE,
)
STAGE_BATCH = Histogram(
    "cosyserve_stage_batch_size", "Utterances that one step worked for.", ["stage"], buckets=(1, 2, 4, 8, 16, 32)
)
STAGE_STEP = Histogram(
    "cosyserve_stage_step_seconds",
    "Duration of one step.",
    ["stage"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
NONFINITE = Counter("cosyserve_nonfinite_audio", "Requests that ended as the model's values were not finite.")
KV_CACHE_BYTES = Gauge(
    "cosyserve_kv_cache_bytes", "Keys and values of the utterances that are decoded.", multiprocess_mode=_MODE
)
PREFIX_CACHE_BYTES = Gauge(
    "cosyserve_prefix_cache_bytes",
    "Set aside for what the utterances that run may come to keep: the flow's prefixes, keys and values.",
    multiprocess_mode=_MODE,
)
GPU_MEMORY_BYTES = Gauge(
    "cosyserve_gpu_memory_bytes", "Taken by the engine on its GPU; 0 without one.", multiprocess_mode=_MODE
)
VOICE_CACHE_HITS = Counter("cosyserve_voice_cache_hits", "Voices that were found in a cache.", ["cache"])
VOICE_CACHE_MISSES = Counter("cosyserve_voice_cache_misses", "Voices that had to be computed.", ["cache"])
VOICE_CACHE_BYTES = Gauge("cosyserve_voice_cache_bytes", "Size of a cache.", ["cache"], multiprocess_mode=_MODE)
PROMPT_CACHE, REFERENCE_CACHE = "prompt", "reference"
"""What the flow made of voices' prompts; what the prompt encoder made of recordings."""

MEMORY_SECONDS = 10.0  # of work, after which a rate counts for 1/e


def voice_looked_up(cache: str, found: bool) -> None:
    (VOICE_CACHE_HITS if found else VOICE_CACHE_MISSES).labels(cache).inc()


class AudioRate:
    """Seconds of audio that the engine makes per second of work, as an exponential average.

    Work is the time in which a step is under way, so that the rate does not fall while nobody asks. Each piece
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
