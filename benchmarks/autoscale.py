"""What Knative's autoscaler does with a CosyServe revision, by simulation; and the service times it is fed with.

    python -m benchmarks.autoscale simulate --trace daily --plot day.png
    python -m benchmarks.autoscale sweep --trace daily --ttfa-p95 1.0
    python -m benchmarks.autoscale measure --url http://localhost:3000 --write service-times.json

`simulate` runs one setting, `sweep` all combinations of the comma-separated values given, and names the cheapest that
keeps TTFA P95 under the bound. Everything but `measure` depends on --seed alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import aiohttp

from benchmarks.scaling import chart, traces
from benchmarks.scaling.kpa import KpaSettings
from benchmarks.scaling.measure import measure
from benchmarks.scaling.pods import TABLES, ServiceTimes
from benchmarks.scaling.simulation import ColdStart, Scenario, simulate
from benchmarks.scaling.summary import Summary, table

# As the manifests ship it; `docs/autoscaling.md` says why.
SHIPPED = KpaSettings(
    container_concurrency=8,
    target=4,
    target_utilization_percentage=70,
    window=120,
    target_burst_capacity=-1,
    max_scale=4,
    scale_down_delay=120,
    scale_to_zero_pod_retention_period=600,
)
SWEPT = {
    "target": "scaleTarget",
    "container_concurrency": "containerConcurrency",
    "window": "window",
    "panic_window_percentage": "panic-window %",
    "panic_threshold_percentage": "panic-threshold %",
    "scale_to_zero_pod_retention_period": "retention",
    "scale_down_delay": "scale-down-delay",
}
WHOLE = ("container_concurrency", "window", "min_scale", "max_scale", "initial_scale", "activation_scale")
ROWS = 12  # of a sweep's table


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (OSError, ValueError, aiohttp.ClientError) as error:
        raise SystemExit(f"autoscale: error: {error}") from error


# -- commands ----------------------------------------------------------------------------------------------------------


def _simulate(options: argparse.Namespace) -> None:
    settings = SHIPPED
    for name in _setting_names():
        if (value := getattr(options, name)) is not None:
            settings = replace(settings, **{name: value})
    scenario = _scenario(options, settings)
    run = simulate(scenario, _arrivals(options), options.duration)
    print(f"Service times: {scenario.times.label}. Trace: {options.trace}, {options.duration / 3600:g} h.\n")
    print(table([Summary.of(run, options.duration).cells(options.price)]))
    if options.plot is not None:
        chart.draw(run, options.plot, f"{options.trace} trace, {scenario.times.label}")
        print(f"\nchart: {options.plot}")


def _sweep(options: argparse.Namespace) -> None:
    grid = [
        replace(SHIPPED, **dict(zip(SWEPT, values, strict=True)))
        for values in itertools.product(*(getattr(options, name) or [getattr(SHIPPED, name)] for name in SWEPT))
    ]
    fixed = {name: value for name in _setting_names() - set(SWEPT) if (value := getattr(options, name)) is not None}
    grid = [replace(settings, **fixed) for settings in grid]
    scenarios = [_scenario(options, settings) for settings in grid]
    evaluate = partial(_evaluate, arrivals=_arrivals(options), duration=options.duration)
    if options.workers > 1:
        with ProcessPoolExecutor(options.workers) as pool:
            summaries = list(pool.map(evaluate, scenarios))
    else:
        summaries = list(map(evaluate, scenarios))
    # The cheapest first; what serves the users before what does not.
    order = sorted(
        zip(grid, summaries, strict=True),
        key=lambda pair: (not pair[1].within(options.ttfa_p95), pair[1].pod_hours, pair[1].ttfa_p95),
    )
    good = sum(summary.within(options.ttfa_p95) for summary in summaries)
    print(f"{good} of {len(grid)} settings keep TTFA P95 within {options.ttfa_p95:g} s; the cheapest first:\n")
    print(table([_row(settings, summary, options) for settings, summary in order[:ROWS]]))
    if not good:
        raise SystemExit(1)


def _row(settings: KpaSettings, summary: Summary, options: argparse.Namespace) -> dict[str, str]:
    within = {"within": "yes" if summary.within(options.ttfa_p95) else "no"}
    return (
        {title: f"{getattr(settings, name):g}" for name, title in SWEPT.items()} | within | summary.cells(options.price)
    )


def _evaluate(scenario: Scenario, arrivals: traces.Arrivals, duration: float) -> Summary:
    return Summary.of(simulate(scenario, arrivals, duration), duration)


def _measure(options: argparse.Namespace) -> None:
    times = measure(options.url.rstrip("/"), options.streams, options.rounds, options.passes, options.label)
    blocks = ", ".join(f"{block:g}" for block in times.blocks_s)
    print(f"{times.label}. {times.source} Seconds of audio per block: {blocks}, ...\n")
    rows = [
        {
            "streams": str(load.streams),
            "TTFA s": f"{load.ttfa_s:.3f}",
            "RTF of one stream": f"{load.rtf:.3f}",
            "audio s per s": f"{load.streams / load.rtf:.2f}",
        }
        for load in times.loads
    ]
    print(table(rows))
    if options.write is not None:
        times.write(options.write)
        print(f"\nwritten: {options.write}")


# -- what the options mean ---------------------------------------------------------------------------------------------


def _scenario(options: argparse.Namespace, settings: KpaSettings) -> Scenario:
    try:
        times = ServiceTimes.read(options.service_times)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{options.service_times} is no table of service times: {error}") from error
    return Scenario(
        settings,
        times,
        ColdStart(options.pull, options.load, options.warm_up),
        timeout=options.timeout,
        queue_capacity=options.queue_capacity,
        seed=options.seed,
    )


def _arrivals(options: argparse.Namespace) -> traces.Arrivals:
    lengths, duration, seed = traces.Lengths(options.length), options.duration, options.seed
    match options.trace:
        case "constant":
            return traces.constant(options.rate, duration, lengths, seed)
        case "daily":
            return traces.daily(options.rate, options.night_per_hour / 3600, duration, lengths, seed)
        case "burst":
            return traces.burst(
                options.rate, options.burst_factor, duration / 2, options.burst_seconds, duration, lengths, seed
            )
        case "patchy":
            return traces.patchy(60 * options.every_minutes, duration, lengths, seed)
    arrivals = traces.from_csv(Path(options.trace))
    return [arrival for arrival in arrivals if arrival[0] < duration]


def _setting_names() -> set[str]:
    return set(KpaSettings.__dataclass_fields__)


def _bounds(text: str) -> tuple[float, float]:
    """`8` or `0-20`, seconds."""
    low, _, high = text.partition("-")
    bounds = (float(low), float(high or low))
    if not 0 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not SECONDS or LOW-HIGH")
    return bounds


def _several(kind: type) -> Callable[[str], list]:
    def parse(text: str) -> list:
        return [kind(part) for part in text.split(",")]

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("autoscale", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("simulate", help="one setting over one trace")
    _add_scenario(one, several=False)
    one.add_argument("--plot", type=Path, metavar="FILE", help="chart of pods, queue and TTFA; needs matplotlib")
    one.set_defaults(run=_simulate)
    many = commands.add_parser("sweep", help="find the cheapest setting under a TTFA bound")
    _add_scenario(many, several=True)
    many.add_argument("--ttfa-p95", type=float, default=1.0, metavar="S", help="bound (default %(default)s)")
    many.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default %(default)s)")
    many.set_defaults(run=_sweep)
    real = commands.add_parser("measure", help="service times of a running service")
    real.add_argument("--url", default="http://localhost:3000")
    real.add_argument("--streams", type=_several(int), default=[1, 2, 4, 8], metavar="N,N", help="streams at once")
    real.add_argument(
        "--rounds", type=int, default=4, metavar="N", help="requests of each client (default %(default)s)"
    )
    real.add_argument("--passes", type=int, default=3, metavar="N", help="over all levels (default %(default)s)")
    real.add_argument("--label", default="measured", help="what was measured: model, machine")
    real.add_argument("--write", type=Path, metavar="FILE", help="JSON for --service-times")
    real.set_defaults(run=_measure)
    return parser


def _add_scenario(parser: argparse.ArgumentParser, *, several: bool) -> None:
    add = parser.add_argument
    shipped = ", ".join(sorted(path.stem for path in TABLES.glob("*.json")))
    add("--service-times", default="gpu-assumed", metavar="NAME", help=f"{shipped}, or a JSON file")
    add("--trace", default="daily", help="constant, daily, burst, patchy, or a CSV file of seconds,length")
    add("--duration", type=float, metavar="S", default=traces.DAY, help="seconds (default a day)")
    add("--rate", type=float, default=2.0, help="requests/s: constant, at the daily peak, before the burst")
    add("--night-per-hour", type=float, default=4.0, help="daily: requests per hour at night")
    add("--burst-factor", type=float, default=20.0, help="burst: times the rate, in the middle of the duration")
    add("--burst-seconds", type=float, default=120.0)
    add("--every-minutes", type=float, default=15.0, help="patchy: one request each")
    add("--length", type=float, default=5.0, metavar="S", help="median seconds of speech")
    add("--pull", type=_bounds, default=(0.0, 20.0), metavar="S-S", help="image pull, and the wait for a node")
    add("--load", type=_bounds, default=(8.0, 8.0), metavar="S-S", help="loading the weights")
    add("--warm-up", type=_bounds, default=(2.0, 2.0), metavar="S-S")
    add("--timeout", type=float, default=600.0, metavar="S", help="the revision's timeoutSeconds")
    add("--queue-capacity", type=int, default=10_000, help="requests the activator holds")
    add("--price", type=float, default=1.0, help="per pod-hour")
    add("--seed", type=int, default=0)
    group = parser.add_argument_group("settings", "Knative's; defaults as shipped")
    for name in sorted(_setting_names()):
        kind: type = int if name in (*WHOLE, "scale_down_delay") else float
        listed = several and name in SWEPT
        title = f"--{SWEPT.get(name, name) if name.startswith('scale_to_zero_pod') else name}".replace("_", "-")
        group.add_argument(
            title,
            dest=name,
            type=_several(kind) if listed else kind,
            metavar="V,V" if listed else "V",
            help=f"{getattr(SHIPPED, name):g}",
        )


if __name__ == "__main__":
    main()
