"""The command line of the rollout command."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Number = Callable[[str], float]


def _number(what: str, least: float, most: float) -> Number:
    """The type of an option that takes a number from `least` to `most`; nan is none."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no {what} from {least:g} to {most:g}")
        return value

    return read


_seconds = _number("time in seconds", 0.001, 1e9)
_share = _number("share", 0, 1)
_ratio = _number("ratio", 0.001, 1e9)
_requests = _number("number of requests", 1, 1e9)

THRESHOLDS: dict[str, tuple[Number, str]] = {
    "ttfa_seconds": (_seconds, "P95 time to first audio of the canary, at most"),
    "ttfa_ratio": (_ratio, "the same, at most so many times the stable revision's"),
    "rtf": (_ratio, "P95 real-time factor of the canary, at most"),
    "rtf_ratio": (_ratio, "the same, at most so many times the stable revision's"),
    "error_rate": (_share, "failed requests of the canary, at most; a share, 0 to 1"),
    "error_excess": (_share, "the same, at most so much over the stable revision's"),
    "continuity": (_share, "streams without a gap of the canary, at least; a share, 0 to 1"),
    "continuity_ratio": (_ratio, "the same, at least so many times the stable revision's"),
}


Function = Callable[[argparse.Namespace], None]


def parse(arguments: list[str] | None, functions: Mapping[str, Function]) -> argparse.Namespace:
    """What was asked for; `command` is the function of the command. Exits with 2 if it makes no sense."""
    whole = _parser(functions)
    options = whole.parse_args(arguments)
    if not any(getattr(options, source, None) for source in ("name", "file", "url")):
        whole.error("--name is needed")
    if options.command is functions["canary"] and options.percent is None and not options.analyse:
        whole.error("canary needs --percent N or --analyse")
    return options


def _parser(functions: Mapping[str, Function]) -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="rollout.py", description="Rolls an InferenceService out, step by step.")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    common, analysis = _common_options(), _analysis_options()

    def add(name: str, what: str, go_on: str, *parents: argparse.ArgumentParser) -> Any:
        command = commands.add_parser(name, help=what, description=what, parents=[common, *parents])
        command.set_defaults(command=functions[name], interrupted=go_on)
        return command

    deploy = add("deploy", "create or update from a manifest, and wait", "Run deploy again to go on waiting.")
    deploy.add_argument(
        "-f", "--file", required=True, metavar="FILE", help="YAML with one InferenceService; - is stdin"
    )
    deploy.add_argument("--force", action="store_true", help="also where a canary is under way")

    status = add("status", "show revisions, traffic and what is not ready", "")
    status.add_argument("--json", action="store_true", help="as JSON")

    stays = "The canary stays where it is: go on with watch, or end it with promote or rollback."
    canary = add("canary", "give a new template a part of the traffic", stays, analysis)
    what = canary.add_mutually_exclusive_group()
    what.add_argument("--image", metavar="REF", help="the live template with this image")
    what.add_argument("-f", "--file", metavar="FILE", help="the template of this manifest; - is stdin")
    canary.add_argument("--percent", type=_percent, metavar="N", help="0 to 100; 0: reached by its tag only")
    canary.add_argument("--analyse", action="store_true", help="go on as watch does; starts at the first step")
    canary.add_argument("--force", action="store_true", help="also where another canary is under way")

    add("watch", "analyse the canary under way, step by step, to promotion or rollback", stays, analysis)
    add("promote", "give the canary all traffic", "Run promote again to go on.")
    rollback = add("rollback", "bring traffic and template back", "Run rollback again to go on.")
    rollback.add_argument("--undo", action="store_true", help="also take back the last rollout that is finished")

    warm = add("warm", "speak a sentence to the newest revision until it answers", "Run warm again.")
    warm.add_argument("--url", help="where to, instead of the tag's URL")
    warm.add_argument("--host", help="Host header, where --url is the gateway's address")
    warm.add_argument("--tag", choices=("latest", "prev"), default="latest", help="whose URL; default latest")
    warm.add_argument("--text", default="Good morning.", help="what is spoken")
    warm.add_argument("--body", metavar="FILE", help="JSON body of the request, for models that need a voice")

    add("delete", "delete, and wait until it is gone", "The deletion goes on; run delete again to wait.")
    return whole


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--kubeconfig", metavar="FILE", help="default: KUBECONFIG, ~/.kube/config, or the pod's own")
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--namespace", "-n", help="default: the manifest's, or the context's")
    common.add_argument("--name", help="of the InferenceService; default: the manifest's")
    common.add_argument("--timeout", type=_seconds, default=1800.0, metavar="S", help="of each wait; default 1800")
    common.add_argument("--poll", type=_seconds, default=2.0, metavar="S", help="between two looks; default 2")
    common.add_argument(
        "--settle",
        type=_seconds,
        default=10.0,
        metavar="S",
        help="until a status that proves nothing counts; default 10",
    )
    return common


def _analysis_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("analysis")
    group.add_argument("--prometheus", default="http://prometheus-operated.monitoring.svc:9090", metavar="URL")
    group.add_argument("--steps", type=_steps, default=(5, 25, 50, 100), help="percents; default 5,25,50,100")
    group.add_argument("--interval", type=_seconds, default=300.0, metavar="S", help="of a step, at least; default 300")
    group.add_argument("--check", type=_seconds, default=15.0, metavar="S", help="between two looks; default 15")
    group.add_argument("--query-timeout", type=_seconds, default=15.0, metavar="S", help="of one query; default 15")
    group.add_argument(
        "--min-requests", type=_requests, default=50.0, metavar="N", help="per revision and step; default 50"
    )
    group.add_argument("--patience", type=_seconds, default=1800.0, metavar="S", help="without numbers; default 1800")
    group.add_argument("--without-data", choices=("rollback", "stop"), default="rollback", help="after --patience")
    group.add_argument(
        "--skip", action="append", default=[], choices=("ttfa", "rtf", "errors", "continuity"), help="do not look at it"
    )
    for name, (kind, what) in THRESHOLDS.items():
        group.add_argument("--" + name.replace("_", "-"), dest=name, type=kind, metavar="X", help=what)
    return parser


def _percent(text: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or int(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole percentage from 0 to 100")
    return int(text)


def _steps(text: str) -> tuple[int, ...]:
    values = tuple(_percent(part) for part in text.split(","))
    if list(values) != sorted(set(values)) or values[0] == 0:
        raise argparse.ArgumentTypeError(f"{text}: percents from 1 to 100 that rise, such as 5,25,50,100")
    return values
