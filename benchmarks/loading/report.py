"""A measurement as a Markdown table with notes, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from benchmarks.loading.figures import Figures, Spread
from benchmarks.loading.formats import DEFAULT_RATE
from benchmarks.scaling.summary import table

LATE_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Report:
    """`server`: the endpoint; `asked`: the request's body without its text; `settings`: what else makes it repeatable;
    `interrupted`: by the user, `skipped`: loads that were left out."""

    server: str
    asked: dict[str, object]
    settings: dict[str, object]
    levels: tuple[Figures, ...]
    interrupted: bool = False
    skipped: tuple[str, ...] = ()

    def markdown(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        parts = [f"`{self.server}`, asked with `{json.dumps(self.asked)}`; {settings}."]
        if self.levels:
            parts.append(table([_row(figures) for figures in self.levels]))
        parts += ["\n".join(f"- {note}" for note in notes)] if (notes := self._notes()) else []
        return "\n\n".join(parts)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", "utf-8")

    def _notes(self) -> list[str]:
        notes = [
            f"{_load(figures)}: {failure.count} x `{failure.kind}`, such as: {failure.example}"
            for figures in self.levels
            for failure in figures.failures
        ]
        notes += [
            f"{_load(figures)}: {figures.refusals} refusals (429 or 503), retries included"
            for figures in self.levels
            if figures.refusals
        ]
        notes += [
            f"{_load(figures)}: interrupted with {figures.unfinished} requests in flight, which count nowhere"
            for figures in self.levels
            if figures.unfinished
        ]
        notes += [
            f"{_load(figures)}: this client itself was late by {figures.client_lag_p99_s:.3f} s (P99), "
            "and so are its times; give it a machine of its own"
            for figures in self.levels
            if figures.client_lag_p99_s > LATE_SECONDS
        ]
        if any(figures.rate_assumed for figures in self.levels):
            notes.append(
                f"ASSUMED: {DEFAULT_RATE} Hz. The server does not name the sample rate of its raw PCM, and all figures "
                "but TTFA and gap depend on it; --sample-rate sets it"
            )
        if self.skipped:
            notes.append(f"not measured, as no request had succeeded before: {', '.join(self.skipped)}")
        if self.interrupted:
            notes.append("interrupted: this is what was measured until then")
        return notes


def _load(figures: Figures) -> str:
    return f"{figures.load} {figures.value:g}"


def _row(figures: Figures) -> dict[str, str]:
    return {
        "load": _load(figures),
        "ok": str(figures.ok),
        "failed": str(figures.requests - figures.ok),
        "TTFA P50/P95/P99 s": _cells(figures.ttfa_s, "p50", "p95", "p99"),
        "gap P50/P95/max s": _cells(figures.gap_s, "p50", "p95", "max"),
        "RTF P50/P95": _cells(figures.rtf, "p50", "p95"),
        "audio-s/s": f"{figures.audio_s_per_s:.2f}",
        "continuity at once/in total %": "/".join(
            "-" if share is None else f"{100 * share:.1f}"
            for share in (figures.continuity_at_once, figures.continuity_in_total)
        ),
        "starved mean/max s": _cells(figures.starved_s, "mean", "max"),
        "audio s": _cells(figures.audio_s, "mean"),
    }


def _cells(spread: Spread | None, *names: str) -> str:
    return "/".join("-" if spread is None else f"{getattr(spread, name):.3f}" for name in names)
