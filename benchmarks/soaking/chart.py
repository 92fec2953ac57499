"""What the processes held over a soak, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.soaking.processes import Sample
from benchmarks.soaking.verdict import Rest

PANELS = (("rss", "RSS, MiB"), ("threads", "threads"), ("fds", "open files"))


def draw(samples: Sequence[Sample], rests: Sequence[Rest], began: float, path: Path) -> bool:
    """A column of panels: what was held under load as lines, at rest as dots. False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 10), layout="constrained")
    panels = figure.subplots(len(PANELS), 1, sharex=True)
    for panel, (name, label) in zip(panels, PANELS, strict=True):
        for process in samples[0].held:
            at = [sample.at - began for sample in samples]
            values = [getattr(sample.held[process], name) for sample in samples]
            (line,) = panel.plot(at, values, lw=0.8, label=process)
            resting = [rest.values[f"{process} {name}"] for rest in rests]
            panel.plot([rest.at for rest in rests], resting, "o", ms=3, color=line.get_color())
        panel.set_ylabel(label)
        panel.set_ylim(0)
    panels[0].legend(loc="lower right")
    panels[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=110)
    return True
