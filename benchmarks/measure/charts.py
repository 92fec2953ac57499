"""Plots of a run, by matplotlib, which is needed for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.loading import chart
from benchmarks.measure.model_report import ModelReport
from benchmarks.measure.report import Bench


def draw_all(bench: Bench, folder: Path) -> tuple[str, ...]:
    """The names of the files written; none without matplotlib."""
    return tuple(_draw(bench, folder)) if find_spec("matplotlib") else ()


def _draw(bench: Bench, folder: Path) -> Iterator[str]:
    for model in bench.models:
        if model.loads:
            levels = [load.figures for load in model.loads]
            chart.draw(levels, folder / f"load-{model.name}.png", f"{model.name}: the engine under load")
            yield f"load-{model.name}.png"
    if bench.models:
        _streaming(bench.models, folder / "streaming.png")
        yield "streaming.png"


def _streaming(models: tuple[ModelReport, ...], path: Path) -> None:
    """Per model: CPU time of a stream beside one pass, and what hops cost the later they come."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6 * len(models)), layout="constrained")
    for (work, hops), model in zip(figure.subplots(len(models), 2, squeeze=False), models, strict=True):
        compute = model.compute
        ways = {"one pass": compute.buffered, "streamed": compute.streamed, "upstream's": compute.upstream}
        flows = [way.flow for way in ways.values()]
        work.bar(list(ways), flows, label="flow")
        work.bar(list(ways), [way.vocoder for way in ways.values()], bottom=flows, label="vocoder")
        work.set_ylabel("CPU s")
        work.set_title(f"{model.name}: {compute.seconds} s of speech, {compute.precision}")
        work.legend()
        for growth in model.growths:
            if growth.hops:
                label = "no window" if growth.window is None else f"{growth.window} s window"
                costs = [1000 * hop.per_token for hop in growth.hops]
                hops.plot([hop.at for hop in growth.hops], costs, marker="o", label=label)
        hops.set_ylim(bottom=0)
        hops.set_xlabel("seconds into the stream")
        hops.set_ylabel("CPU-ms per token of a hop")
        hops.legend()
    figure.savefig(path, dpi=110)
