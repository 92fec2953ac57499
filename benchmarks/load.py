"""Puts load on a running speech server, ours or any other with OpenAI's API, and measures what its listeners hear.

    python benchmarks/load.py http://localhost:3000 --concurrency 1,2,4,8,16 --duration 30
    python benchmarks/load.py http://localhost:3000 --rate 0.5,1,2 --requests 60 --json load.json --plot load.png
    python benchmarks/load.py http://rival:8000/v1 --model tts-1 --voice alloy --extra '{"stream_format": "audio"}'

The answer may be raw PCM, WAV or server-sent events, streamed or not. Ctrl-C prints what was measured until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.loading import chart
from benchmarks.loading.client import Target
from benchmarks.loading.figures import Figures
from benchmarks.loading.levels import Closed, Extent, Level, Load, Open, Plan, run
from benchmarks.loading.report import Report
from benchmarks.loading.texts import TEXTS, read_texts

CONCURRENCY = (1, 2, 4, 8, 16)
SECONDS = 30.0
LONGEST_PRINTED = 60
TELL_EVERY = 10  # calls, where lines cannot be overwritten


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        plan = _plan(options)
        if options.plot is not None:
            chart.check()
    except (OSError, ValueError) as error:
        parser.error(str(error))
    levels: list[Level] = []
    interrupted = False
    print(f"warm-up: {plan.warm_up} requests", file=sys.stderr, flush=True)
    try:
        asyncio.run(run(plan, levels, _Progress()))
    except KeyboardInterrupt:
        interrupted = True
        print(file=sys.stderr)
    report = _report(plan, levels, interrupted)
    print(report.markdown(), flush=True)
    succeeded = any(figures.ok for figures in report.levels)
    try:
        if options.json is not None:
            report.write(options.json)
        if options.plot is not None and succeeded:
            chart.draw(report.levels, options.plot, report.server)
    except (OSError, ValueError) as error:
        raise SystemExit(f"load: error: {error}") from error
    if interrupted or not succeeded:
        raise SystemExit(130 if interrupted else 1)


class _Progress:
    """On stderr: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, level: Level, ended: bool) -> None:
        self._calls = 0 if ended else self._calls + 1
        if sys.stderr.isatty():
            print(f"\r{level}\033[K", end="\n" if ended else "", file=sys.stderr, flush=True)
        elif self._calls % TELL_EVERY == 0:
            print(level, file=sys.stderr, flush=True)


def _report(plan: Plan, levels: Sequence[Level], interrupted: bool) -> Report:
    extent = plan.extent
    settings: dict[str, object] = {
        "texts": len(plan.texts),
        "per level": f"{extent.requests} requests" if extent.requests else f"{extent.seconds:g} s",
        "warm-up": plan.warm_up,
        "timeout": f"{plan.target.timeout:g} s",
        "seed": plan.seed,
    }
    skipped = () if interrupted else tuple(str(load) for load in plan.loads[len(levels) :])
    figures = tuple(Figures.of(level) for level in levels)
    server = plan.target.endpoint.partition("?")[0]  # some have a key in the query
    asked = {name: _shortened(value) for name, value in plan.target.body.items()}
    return Report(server, asked, settings, figures, interrupted, skipped)


def _shortened(value: object) -> object:
    """A reference recording is nothing to print."""
    long = isinstance(value, str) and len(value) > LONGEST_PRINTED
    return f"{str(value)[:LONGEST_PRINTED]}... ({len(str(value))} characters)" if long else value


# -- what the options mean ---------------------------------------------------------------------------------------------


def _plan(options: argparse.Namespace) -> Plan:
    closed: list[Load] = [Closed(clients) for clients in options.concurrency or ()]
    loads = closed + [Open(rate) for rate in options.rate or ()]
    seconds = options.duration or (None if options.requests else SECONDS)
    return Plan(
        target=Target(
            endpoint=_endpoint(options.url),
            body=_body(options),
            api_key=options.api_key or os.environ.get("OPENAI_API_KEY") or None,
            sample_rate=options.sample_rate,
            timeout=options.timeout,
            retry=options.retry,
        ),
        texts=TEXTS if options.texts is None else read_texts(options.texts),
        loads=loads or [Closed(clients) for clients in CONCURRENCY],
        extent=Extent(options.requests, seconds),
        warm_up=options.warm_up,
        seed=options.seed,
    )


def _endpoint(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.username is not None:
        raise ValueError("URL must be http://HOST[:PORT] or https://..., without a user (--api-key is for that)")
    path = url.path.rstrip("/")
    if not path.endswith("/audio/speech"):
        path += "/audio/speech" if path.endswith("/v1") else "/v1/audio/speech"
    return url._replace(path=path, fragment="").geturl()


def _body(options: argparse.Namespace) -> dict[str, object]:
    """The request but its text; null in --extra takes a field away."""
    body = {
        "model": options.model,
        "voice": options.voice,
        "response_format": options.format,
        "stream": True,
        **options.extra,
    }
    return {name: value for name, value in body.items() if value is not None}


def _object(text: str) -> dict[str, object]:
    """JSON, or @FILE with JSON in it: a command line cannot hold a recording."""
    try:
        value = json.loads(Path(text[1:]).read_text("utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return value


def _positive(kind: type) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
        return value

    return parse


def _several(kind: type) -> Callable[[str], list[float]]:
    one = _positive(kind)

    def parse(text: str) -> list[float]:
        return [one(part) for part in text.split(",")]

    return parse


def _new_file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("url", metavar="URL", help="the server, with or without /v1 or /v1/audio/speech")
    load = parser.add_argument_group("load; without any: --concurrency " + ",".join(map(str, CONCURRENCY)))
    load.add_argument("--concurrency", type=_several(int), metavar="N,N", help="closed loop: clients at once")
    load.add_argument("--rate", type=_several(float), metavar="R,R", help="open loop: Poisson arrivals per second")
    extent = load.add_mutually_exclusive_group()
    extent.add_argument("--duration", type=_positive(float), metavar="S", help=f"of a level (default {SECONDS:g})")
    extent.add_argument("--requests", type=_positive(int), metavar="N", help="of a level, all clients together")
    load.add_argument("--warm-up", type=int, default=1, metavar="N", help="requests first, not counted (default 1)")
    load.add_argument("--seed", type=int, default=0, help="of the arrivals (default 0)")
    load.add_argument(
        "--texts", type=Path, metavar="FILE", help='one per line; .jsonl: with "text" (default: own ones)'
    )
    request = parser.add_argument_group("request")
    request.add_argument("--model", help="left out if not given")
    request.add_argument("--voice", help="left out if not given")
    request.add_argument("--format", choices=("pcm", "wav"), default="pcm", help="response_format (default pcm)")
    request.add_argument(
        "--extra",
        type=_object,
        default={},
        metavar="JSON",
        help='more fields, as JSON or in @FILE; {"stream": null} takes one away',
    )
    request.add_argument("--api-key", metavar="KEY", help="or OPENAI_API_KEY")
    request.add_argument("--sample-rate", type=_positive(int), metavar="HZ", help="of raw PCM, if the answer says none")
    request.add_argument(
        "--timeout", type=_positive(float), default=120.0, metavar="S", help="of a request (default 120)"
    )
    request.add_argument("--retry", action="store_true", help="send a refused request again after its Retry-After")
    add("--json", type=_new_file, metavar="FILE", help="all figures")
    add("--plot", type=_new_file, metavar="FILE", help="chart over the levels (.png, .svg); needs matplotlib")
    return parser


if __name__ == "__main__":
    main()
