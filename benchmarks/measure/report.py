"""A run as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decode import DecodeReport
from benchmarks.loading.figures import Spread
from benchmarks.loading.report import Report as LoadTable
from benchmarks.measure.claims import Claim, claims_of, decode_claims
from benchmarks.measure.engine_load import LoadFigures
from benchmarks.measure.machine import Machine
from benchmarks.measure.model_report import ModelReport
from benchmarks.measure.stages import Stage
from benchmarks.scaling.summary import table

UPSTREAM_NOTE = """\
Upstream's structure is rebuilt around our networks (`benchmarks/measure/upstream.py`): float32, one request after
another, the text head computed, sampling in Python, prompt and prefix recomputed for each hop, the short hops of its
first stream. Two or three of its requests are measured one by one; its queue is as long as so many of the fastest.
Weights of a genuine size are random, the prompt has 3 seconds, every stream the same number of tokens. Streaming costs
are process CPU time on one thread; what a late hop follows on is grown by repeating the first hop's frames. All other
figures are wall time."""


@dataclass(frozen=True)
class Bench:
    """`models` in the order in which they were measured; `decode` None: left out."""

    machine: Machine
    models: tuple[ModelReport, ...]
    decode: DecodeReport | None = None

    @property
    def claims(self) -> tuple[Claim, ...]:
        decoding = () if self.decode is None else decode_claims(self.decode)
        return (*decoding, *(claim for model in self.models for claim in claims_of(model)))

    def write(self, path: Path) -> None:
        """As JSON."""
        values = {"claims": [dataclasses.asdict(claim) | {"met": claim.met} for claim in self.claims]}
        path.write_text(json.dumps(values | dataclasses.asdict(self), indent=1) + "\n", "utf-8")

    def markdown(self, plots: tuple[str, ...] = ()) -> str:
        machine = self.machine
        parts = [
            "# Measured",
            f"{machine.processor}, {machine.cores} cores, {machine.memory_gb:.0f} GB, {machine.threads} threads, load "
            f"{machine.load:.1f} when the run began; torch {machine.torch}, Python {machine.python}.",
            table([claim.cells() for claim in self.claims]),
            UPSTREAM_NOTE,
        ]
        for model in self.models:
            parts += _model(model)
        if self.decode is not None:
            parts += ["## Language model", self.decode.markdown()]
        parts += [f"![{plot}]({plot})" for plot in plots]
        return "\n\n".join(parts) + "\n"


def _model(report: ModelReport) -> list[str]:
    comparison = report.comparison
    parts = [
        f"## {report.name}",
        f"{comparison.streams} streams of {comparison.tokens} tokens at once:",
        table(_serving_rows(report)),
        f"A stream of {report.compute.seconds} s, CPU seconds ({report.compute.precision}):",
        table(_compute_rows(report)),
        f"Late hops, CPU-ms per token; in brackets a hop as long right after the first ({report.compute.precision}):",
        table(_growth_rows(report)),
    ]
    for ours in comparison.ours:
        parts += [f"Stages of the {comparison.streams} streams, {ours.precision}:", table(_stage_rows(ours.stages))]
    if report.loads:
        parts += _loads(report)
    return [*parts, f"Peak memory of the measuring process: {report.peak_gb:.1f} GB."]


def _loads(report: ModelReport) -> list[str]:
    levels = tuple(load.figures for load in report.loads)
    loads = LoadTable("the engine, in process", {"stream": True}, {"texts": "everyday sentences"}, levels)
    return [
        loads.markdown(),
        "Share of the wall time, and utterances per call (most):",
        table(_load_rows(report.loads)),
    ]


def _serving_rows(report: ModelReport) -> list[dict[str, str]]:
    comparison = report.comparison
    upstream = comparison.upstream
    waited = upstream.ttfa(comparison.streams)
    rows = [_serving_row("upstream's, float32", waited, upstream.audio_s_per_s, "")]
    for ours in comparison.ours:
        figures = ours.figures
        assert figures.ttfa_s is not None
        rtf = "" if figures.rtf is None else f"{figures.rtf.p50:.2f}"
        rows.append(_serving_row(f"ours, {ours.precision}", figures.ttfa_s, figures.audio_s_per_s, rtf))
    return rows


def _serving_row(name: str, ttfa: Spread, rate: float, rtf: str) -> dict[str, str]:
    waits = f"{ttfa.p50:.2f}/{ttfa.p95:.2f}"
    return {"": name, "TTFA P50/P95 s": waits, "audio-s/s": f"{rate:.3f}", "RTF of a stream, P50": rtf}


def _compute_rows(report: ModelReport) -> list[dict[str, str]]:
    compute = report.compute
    base = compute.buffered
    return [
        {
            "": name,
            "flow": f"{way.flow:.2f} ({way.flow / base.flow:.2f}x)",
            "vocoder": f"{way.vocoder:.2f} ({way.vocoder / base.vocoder:.2f}x)",
            "both": f"{way.both:.2f} ({way.both / base.both:.2f}x)",
        }
        for name, way in (("one pass", base), ("streamed", compute.streamed), ("upstream's", compute.upstream))
    ]


def _growth_rows(report: ModelReport) -> list[dict[str, str]]:
    numbers = sorted({(hop.number, hop.at) for growth in report.growths for hop in growth.hops})
    rows = []
    for growth in report.growths:
        row = {
            "window": "none" if growth.window is None else f"{growth.window} s",
            "keeps at the end": f"{growth.prefix_gb:.2f} GB" + ("" if growth.hops else ": not measured"),
        }
        hops = {hop.number: hop for hop in growth.hops}
        for number, at in numbers:
            hop = hops.get(number)
            cell = "" if hop is None else f"{1000 * hop.per_token:.1f} ({1000 * hop.early:.1f})"
            row[f"hop {number} at {at:.0f} s"] = cell
        rows.append(row)
    return rows


def _stage_rows(stages: tuple[Stage, ...]) -> list[dict[str, str]]:
    return [
        {
            "stage": stage.name,
            "calls": str(stage.calls),
            "wall s": f"{stage.seconds:.2f}",
            "ms per call": f"{1000 * stage.seconds / stage.calls:.1f}",
            "utterances per call": f"{stage.batch:.1f}",
            "most": str(stage.largest),
        }
        for stage in stages
    ]


def _load_rows(loads: tuple[LoadFigures, ...]) -> list[dict[str, str]]:
    rows = []
    for load in loads:
        row = {"load": f"{load.figures.load} {load.figures.value:g}"}
        for stage in sorted(load.stages, key=lambda stage: ("prefill", "decode", "flow", "vocoder").index(stage.name)):
            share = stage.seconds / load.figures.wall_s
            row[stage.name] = f"{100 * share:.0f} %, {stage.batch:.1f} ({stage.largest})"
        rows.append(row)
    return rows
