"""Prometheus metrics of the public surface, served at /metrics together with BentoML's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge, Histogram

from api.errors import as_api_error
from api.exchange import current
from api.tracing import stepped
from runners.stages import ENCODE_AUDIO, StageRecorder

NO_MODE = "none"  # of a request that was refused before it was known what it wants
_LATENCY = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60)
_DURATION = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_GAP = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
_RTF = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)
REQUESTS = Counter("cosyserve_requests", "Requests by route, mode and outcome.", ["route", "mode", "outcome"])
SESSIONS = Counter("cosyserve_websocket_sessions", "WebSocket sessions that ended.", ["route", "outcome"])
TTFA = Histogram("cosyserve_ttfa_seconds", "Request read to first audio.", ["route"], buckets=_LATENCY)
DURATION = Histogram(
    "cosyserve_request_duration_seconds",
    "Request read to the end, of those that ended well.",
    ["route"],
    buckets=_DURATION,
)
RTF = Histogram("cosyserve_rtf", "Processing time over audio time.", ["route"], buckets=_RTF)
AUDIO = Counter("cosyserve_audio_seconds", "Audio made, in seconds.", ["route"])
CHARACTERS = Counter("cosyserve_characters", "Characters of the texts that were spoken.", ["route"])
STREAMS = Counter("cosyserve_streams", "Streamed responses that had audio.", ["route"])
DISCONTINUOUS = Counter(
    "cosyserve_discontinuous_streams", "Streamed responses whose listener would have run dry.", ["route"]
)
UNDERRUN = Counter("cosyserve_audio_underrun_seconds", "Silence that listeners of streams would have had.", ["route"])
GAP = Histogram("cosyserve_inter_chunk_gap_seconds", "Between two pieces of a stream.", ["route"], buckets=_GAP)
ACTIVE = Gauge("cosyserve_active_streams", "Requests in progress.", ["route"], multiprocess_mode="livesum")
STAGES = StageRecorder(stepped)
"""The stage of this process: encode_audio."""


def ended(outcome: str) -> None:
    """How what is being answered ended, unless that is known already."""
    if (exchange := current()) is not None:
        exchange.ended(outcome)


class Recording:
    """One request's entries in the metrics. `finished` counts once, however often it is called.

    `ahead`: what is made waits for its `turn`, and nobody listens before. A listener plays what there is as it comes,
    and waits when there is nothing.
    """

    def __init__(self, route: str, *, ahead: bool = False) -> None:
        self._route = route
        self._mode = NO_MODE
        self._began = time.monotonic()
        self._samples = 0
        self._sample_rate = 1
        self._outcome: str | None = None
        self._first_audio_at = self._last_audio_at = 0.0
        self._played_at = 0.0  # when the listener will have played all there is
        self._streamed = False
        self._ahead = ahead
        self._dry = False
        ACTIVE.labels(route).inc()
        if (exchange := current()) is not None:
            exchange.recorded = True

    def started(self, sample_rate: int, mode: str = NO_MODE) -> None:
        """`mode`: in which the model is to speak."""
        self._sample_rate, self._mode = sample_rate, mode

    def spoke(self, characters: int) -> None:
        CHARACTERS.labels(self._route).inc(characters)

    def audio(self, samples: int, *, streamed: bool = False) -> None:
        """More audio was made; `streamed`: and goes to a listener as it comes."""
        now = time.monotonic()
        if self._samples == 0:
            TTFA.labels(self._route).observe(now - self._began)
            self._first_audio_at = self._played_at = now
            self._streamed = streamed
            self._listener_begins()
        else:
            self._listen(now)
            if self._heard:
                GAP.labels(self._route).observe(now - self._last_audio_at)
        self._samples += samples
        self._last_audio_at = now
        self._played_at += samples / self._sample_rate

    @contextmanager
    def encoding(self) -> Iterator[None]:
        """The block encodes audio of this request."""
        began = time.monotonic()
        yield
        STAGES.record(ENCODE_AUDIO, began, time.monotonic(), (self,))

    def turn(self) -> None:
        """The wait for it is over: the clock starts now, and whoever listens gets what is there."""
        self._began = self._first_audio_at = self._last_audio_at = time.monotonic()
        self._played_at = self._began + self._samples / self._sample_rate
        self._ahead = False
        self._listener_begins()

    @property
    def seconds_to_first_audio(self) -> float | None:
        """None before there is any."""
        return self._first_audio_at - self._began if self._samples else None

    @property
    def seconds_so_far(self) -> float:
        return time.monotonic() - self._began

    @property
    def outcome(self) -> str | None:
        """None until it is finished."""
        return self._outcome

    @property
    def _heard(self) -> bool:
        return self._streamed and not self._ahead

    def _listener_begins(self) -> None:
        if self._heard:
            STREAMS.labels(self._route).inc()

    def _listen(self, now: float) -> None:
        """Count what the listener waited for until `now`, and, once, the stream."""
        late = now - self._played_at
        if not self._heard or late <= 0:
            return
        UNDERRUN.labels(self._route).inc(late)
        self._played_at = now
        if not self._dry:
            self._dry = True
            DISCONTINUOUS.labels(self._route).inc()

    def finished(self, outcome: str) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        if outcome != "ok":  # more was to come: whoever gave up or saw it fail may have run dry first
            self._listen(time.monotonic())
        ACTIVE.labels(self._route).dec()
        REQUESTS.labels(self._route, self._mode, outcome).inc()
        if outcome == "ok":
            DURATION.labels(self._route).observe(self.seconds_so_far)
        if self._samples:
            seconds = self._samples / self._sample_rate
            AUDIO.labels(self._route).inc(seconds)
            if outcome == "ok":
                RTF.labels(self._route).observe(self.seconds_so_far / seconds)


@contextmanager
def failure_recorded(recording: Recording) -> Iterator[None]:
    """What leaves the block as an exception is the request's outcome."""
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        recording.finished("cancelled")
        raise
    except Exception as error:
        recording.finished(as_api_error(error).code)
        raise
