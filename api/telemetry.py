"""Prometheus metrics of the public surface, served at /metrics together with BentoML's own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge, Histogram

from api.errors import as_api_error

_LATENCY = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 60)
_RTF = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10)
REQUESTS = Counter("cosyserve_requests", "Requests by route and outcome.", ["route", "outcome"])
TTFA = Histogram("cosyserve_ttfa_seconds", "Request read to first audio.", ["route"], buckets=_LATENCY)
RTF = Histogram("cosyserve_rtf", "Processing time over audio time.", ["route"], buckets=_RTF)
AUDIO = Counter("cosyserve_audio_seconds", "Audio made, in seconds.", ["route"])
STREAMS = Counter("cosyserve_streams", "Streamed responses that had audio.", ["route"])
DISCONTINUOUS = Counter("cosyserve_discontinuous_streams", "Of those, where a listener would have run dry.", ["route"])
ACTIVE = Gauge("cosyserve_active_streams", "Requests in progress.", ["route"], multiprocess_mode="livesum")


class Recording:
    """One request's entries in the metrics. `finished` counts once, however often it is called.

    `ahead`: what is made waits for its `turn`, and nobody listens before.
    """

    def __init__(self, route: str, *, ahead: bool = False) -> None:
        self._route = route
        self._began = time.monotonic()
        self._samples = 0
        self._sample_rate = 1
        self._outcome: str | None = None
        self._first_audio_at = 0.0
        self._streamed = False
        self._ahead = ahead
        self._dry = False
        ACTIVE.labels(route).inc()

    def started(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate

    def audio(self, samples: int, *, streamed: bool = False) -> None:
        """More audio was made; `streamed`: and goes to a listener as it comes."""
        now = time.monotonic()
        if self._samples == 0:
            TTFA.labels(self._route).observe(now - self._began)
            self._first_audio_at = now
            self._streamed = streamed
            self._listener_begins()
        else:
            self._listen(now)
        self._samples += samples

    def turn(self) -> None:
        """The wait for it is over: the clock starts now, and whoever listens gets what is there."""
        self._began = self._first_audio_at = time.monotonic()
        self._ahead = False
        self._listener_begins()

    @property
    def seconds_to_first_audio(self) -> float | None:
        """None before there is any."""
        return self._first_audio_at - self._began if self._samples else None

    @property
    def seconds_so_far(self) -> float:
        return time.monotonic() - self._began

    def _listener_begins(self) -> None:
        if self._streamed and not self._ahead:
            STREAMS.labels(self._route).inc()

    def _listen(self, now: float) -> None:
        """Count the stream, once, if a listener who began with the first audio has played all there is by `now`."""
        played_out = now - self._first_audio_at > self._samples / self._sample_rate
        if self._streamed and not self._ahead and not self._dry and played_out:
            self._dry = True
            DISCONTINUOUS.labels(self._route).inc()

    def finished(self, outcome: str) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        if outcome != "ok":  # more was to come: whoever gave up or saw it fail may have run dry first
            self._listen(time.monotonic())
        ACTIVE.labels(self._route).dec()
        REQUESTS.labels(self._route, outcome).inc()
        if self._samples:
            seconds = self._samples / self._sample_rate
            AUDIO.labels(self._route).inc(seconds)
            if outcome == "ok":
                RTF.labels(self._route).observe((time.monotonic() - self._began) / seconds)


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
