"""Streams at once on the engine, beside the same requests one after another in upstream's structure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.loading.figures import Figures, Spread
from benchmarks.loading.levels import Closed
from benchmarks.measure.engine_load import LoadFigures, measure_load
from benchmarks.measure.speakers import endless, fixed_request
from benchmarks.measure.stages import Stage
from benchmarks.measure.streaming import one_thread
from benchmarks.measure.upstream import UpstreamEngine
from models.cosyvoice import CosyVoice
from runners.request import SpeechRequest
from runners.settings import EngineSettings


@dataclass(frozen=True)
class UpstreamRequest:
    """Seconds of wall time of one request, to its first audio and to its end, and of its audio."""

    first: float
    request: float
    audio: float


@dataclass(frozen=True)
class UpstreamServing:
    """The requests that were measured, each alone. The fastest stands for all of the queue: many small operations on
    several threads suffer most from whatever else the machine does, and that is no merit of ours."""

    requests: tuple[UpstreamRequest, ...]

    @property
    def fastest(self) -> UpstreamRequest:
        return min(self.requests, key=lambda one: one.request / one.audio)

    @property
    def audio_s_per_s(self) -> float:
        return self.fastest.audio / self.fastest.request

    def ttfa(self, streams: int) -> Spread:
        """Of so many requests that come at once: each waits for those before it."""
        one = self.fastest
        spread = Spread.of([number * one.request + one.first for number in range(streams)])
        assert spread is not None
        return spread


@dataclass(frozen=True)
class Ours:
    precision: str
    figures: Figures
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Comparison:
    """`streams` at once, of `tokens` speech tokens each."""

    streams: int
    tokens: int
    upstream: UpstreamServing
    ours: tuple[Ours, ...]

    def throughput(self, ours: Ours) -> float:
        """Audio seconds per second, ours to upstream's."""
        return ours.figures.audio_s_per_s / self.upstream.audio_s_per_s

    def latency(self, ours: Ours, percentile: str) -> float:
        """Time to first audio (`p50`, `p95`), ours to upstream's."""
        return getattr(ours.figures.ttfa_s, percentile) / getattr(self.upstream.ttfa(self.streams), percentile)


def compare(
    models: Mapping[str, CosyVoice], settings: Mapping[str, EngineSettings], streams: int, tokens: int
) -> Comparison:
    """`models`: one in float32 under "float32", which is upstream's too, and others, each with its settings.

    Upstream's request is measured before and after ours; for a small network, which has no other precision, also on
    one thread.
    """
    exact = models["float32"]
    requests = [fixed_request(exact, tokens, seed) for seed in range(streams)]
    upstream = UpstreamEngine(exact, endless=True)
    _pass_once(exact)
    before = _upstream_request(upstream, exact, requests[0])
    ours = []
    for precision, model in models.items():
        with endless(model):
            measured: LoadFigures = measure_load(model, settings[precision], requests, Closed(streams), streams)
        ours.append(Ours(precision, measured.figures, measured.stages))
    alone = [before, _upstream_request(upstream, exact, requests[-1])]
    if len(models) == 1:
        with one_thread():
            alone.append(_upstream_request(upstream, exact, requests[0]))
    return Comparison(streams, tokens, UpstreamServing(tuple(alone)), tuple(ours))


def _pass_once(model: CosyVoice) -> None:
    """First calls read weights and noise: upstream's shall not pay for that either."""
    for piece in UpstreamEngine(model, endless=True).speak(fixed_request(model, model.lm.max_ratio, seed=0)):
        assert piece.isfinite().all()


def _upstream_request(upstream: UpstreamEngine, model: CosyVoice, request: SpeechRequest) -> UpstreamRequest:
    began = time.monotonic()
    first, samples = None, 0
    for piece in upstream.speak(request):
        first = time.monotonic() - began if first is None else first
        samples += len(piece)
    assert first is not None
    return UpstreamRequest(first, time.monotonic() - began, samples / model.config.sample_rate)
