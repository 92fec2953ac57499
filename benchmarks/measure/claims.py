"""The claims, each a ratio of two things measured in one run, and its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.decode import UPSTREAM, DecodeReport
from benchmarks.measure.model_report import DEFAULT_WINDOW, ModelReport

DECODE_TARGETS = {1: 2.0, 8: 6.0}  # batch: tokens per second to upstream's


@dataclass(frozen=True)
class Claim:
    """`at_least`: the ratio shall not be below its target, otherwise not above."""

    model: str
    what: str
    precision: str
    ratio: float
    target: float
    at_least: bool
    ours: str
    other: str

    @property
    def met(self) -> bool:
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target

    def cells(self) -> dict[str, str]:
        return {
            "model": self.model,
            "claim": self.what,
            "precision": self.precision,
            "ratio": f"{self.ratio:.2f}",
            "target": f"{'>=' if self.at_least else '<='} {self.target:g}",
            "met": "yes" if self.met else "NO",
            "ours": self.ours,
            "compared with": self.other,
        }


def claims_of(report: ModelReport) -> Iterator[Claim]:
    yield from _serving(report)
    yield from _streaming(report)


def _serving(report: ModelReport) -> Iterator[Claim]:
    comparison = report.comparison
    streams, upstream = comparison.streams, comparison.upstream
    for ours in comparison.ours:
        yield Claim(
            report.name,
            f"audio-s/s at {streams} streams, to upstream's",
            ours.precision,
            comparison.throughput(ours),
            4.0,
            True,
            f"{ours.figures.audio_s_per_s:.3f} audio-s/s",
            f"{upstream.audio_s_per_s:.3f} audio-s/s",
        )
        for percentile in ("p50", "p95"):
            yield Claim(
                report.name,
                f"TTFA {percentile.upper()} at {streams} streams, to upstream's",
                ours.precision,
                comparison.latency(ours, percentile),
                0.25,
                False,
                f"{getattr(ours.figures.ttfa_s, percentile):.2f} s",
                f"{getattr(upstream.ttfa(streams), percentile):.2f} s",
            )


def _streaming(report: ModelReport) -> Iterator[Claim]:
    compute = report.compute
    yield Claim(
        report.name,
        f"compute of {compute.seconds} s streamed, to one pass",
        compute.precision,
        compute.streamed.both / compute.buffered.both,
        1.15,
        False,
        f"{compute.streamed.both:.2f} CPU-s",
        f"{compute.buffered.both:.2f} CPU-s",
    )
    for growth in report.growths:
        if not growth.hops:
            continue
        first, last = growth.hops[0], growth.hops[-1]
        window = "no window" if growth.window is None else f"{growth.window} s window"
        yield Claim(
            report.name,
            f"hop {last.number} to hop {first.number} per token, {window}"
            + (" (default)" if growth.window == DEFAULT_WINDOW else ""),
            growth.precision,
            growth.late_to_early,
            1.1,
            False,
            f"{1000 * last.per_token:.1f} CPU-ms/token",
            f"{1000 * first.per_token:.1f} CPU-ms/token",
        )


def decode_claims(report: DecodeReport) -> Iterator[Claim]:
    """Of the fastest way at each batch size."""
    upstream = next(speed for speed in report.speeds if speed.way == UPSTREAM)
    for batch, target in DECODE_TARGETS.items():
        speeds = [speed for speed in report.speeds if speed.batch == batch and speed.way != UPSTREAM]
        if not speeds:
            continue
        best = max(speeds, key=lambda speed: speed.ratio)
        yield Claim(
            "language model",
            f"tokens/s at batch {batch}, to upstream's",
            best.way,
            best.ratio,
            target,
            True,
            f"{best.tokens_per_second:.1f} tokens/s",
            f"{upstream.tokens_per_second:.1f} tokens/s",
        )
