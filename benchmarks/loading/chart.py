"""Figures over load, drawn by matplotlib, which is needed for nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.loading.figures import Figures

AXES = {"concurrency": "concurrent clients (closed loop)", "rate": "requests per second (open loop)"}


def check() -> None:
    """Before anything is measured. Raises ValueError without matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ValueError("--plot needs matplotlib: pip install 'matplotlib>=3.8,<4'") from error


def draw(levels: Sequence[Figures], path: Path, title: str) -> None:
    """Write the chart to `path`, in the format that its suffix names: a column for each kind of load."""
    from matplotlib.figure import Figure

    columns = {
        kind: found
        for kind in AXES
        if (found := [figures for figures in levels if figures.load == kind and figures.ok])
    }
    figure = Figure(figsize=(6.5 * len(columns), 10), layout="constrained")
    panels = figure.subplots(4, len(columns), squeeze=False, sharex="col", sharey="row")
    for number, (kind, found) in enumerate(columns.items()):
        _column(panels[:, number], found)
        panels[-1, number].set_xlabel(AXES[kind])
    for panel, label in zip(panels[:, 0], ("TTFA, s", "audio-s per s", "RTF", "continuity, %"), strict=True):
        panel.set_ylabel(label)
        panel.set_ylim(0, 1.05 * panel.get_ylim()[1])  # of the whole row, once all is drawn
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def _column(panels, levels: Sequence[Figures]) -> None:
    places = range(len(levels))
    ttfa, throughput, rtf, continuity = panels
    for panel, name in ((ttfa, "ttfa_s"), (rtf, "rtf")):
        for percent, style in (("p50", "-"), ("p95", "--"), ("p99", ":")):
            values = [getattr(getattr(figures, name), percent) for figures in levels]
            panel.plot(places, values, style, marker="o", label=percent.upper())
        panel.legend(loc="upper left")
    throughput.plot(places, [figures.audio_s_per_s for figures in levels], marker="o")
    rtf.axhline(1.0, color="tab:grey", lw=0.8, ls="--")
    for name, style in (("continuity_at_once", "-"), ("continuity_in_total", "--")):
        percent_of = [100 * getattr(figures, name) for figures in levels]
        continuity.plot(places, percent_of, style, marker="o", label=name.replace("_", " "))
    continuity.set_ylim(0, 100)
    continuity.legend(loc="lower left")
    continuity.set_xticks(list(places), [f"{figures.value:g}" for figures in levels])
