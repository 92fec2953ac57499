"""A run over time: pods, queue and TTFA, drawn by matplotlib, which is needed for nothing else."""

from __future__ import annotations

from pathlib import Path

from benchmarks.scaling.simulation import Run


def draw(run: Run, path: Path, title: str) -> None:
    """Write the chart to `path`, in the format that its suffix names. Raises SystemExit without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SystemExit("autoscale: error: --plot needs matplotlib: pip install 'matplotlib>=3.8,<4'") from error
    figure = Figure(figsize=(10, 7), layout="constrained")
    pods, queue, ttfa = figure.subplots(3, 1, sharex=True)
    hours = [sample.time / 3600 for sample in run.samples]
    paid = [sample.pods for sample in run.samples]
    pods.fill_between(hours, paid, step="pre", color="tab:orange", lw=0, label="paid for")
    pods.step(hours, [sample.ready for sample in run.samples], where="pre", color="tab:blue", lw=0.7, label="ready")
    pods.legend(loc="upper left")
    pods.set_ylabel("pods")
    queue.plot(hours, [sample.concurrency for sample in run.samples], color="tab:grey", lw=0.4, label="in flight")
    queue.step(hours, [sample.queue for sample in run.samples], where="pre", color="tab:red", lw=0.9, label="waiting")
    queue.legend(loc="upper left")
    queue.set_ylabel("requests")
    heard = [request for request in run.requests if request.first_audio is not None]
    ttfa.scatter(
        [request.arrived / 3600 for request in heard],
        [(request.first_audio or 0.0) - request.arrived for request in heard],
        s=1,
        rasterized=True,
    )
    ttfa.set_yscale("log")
    ttfa.set_ylabel("TTFA, s")
    ttfa.set_xlabel("hours")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
