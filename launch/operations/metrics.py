"""The metrics that the code declares, as it declares them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from launch.operations.codes import python_files

KINDS = ("Counter", "Gauge", "Histogram")


@dataclass(frozen=True)
class Metric:
    """`name`: as it is declared; Prometheus adds `_total` to a counter, `_bucket`, `_sum`, `_count` to a histogram."""

    kind: str
    name: str
    labels: tuple[str, ...]
    meaning: str


def declared() -> list[Metric]:
    """By name."""
    found = {one.name: one for path in python_files() for one in _metrics(ast.parse(path.read_text()))}
    return [found[name] for name in sorted(found)]


def _metrics(tree: ast.AST) -> Iterator[Metric]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in KINDS:
            continue
        if len(call.args) < 2:  # a counter of collections, say
            continue
        name, meaning = (ast.literal_eval(argument) for argument in call.args[:2])
        given = [item.value for item in call.keywords if item.arg == "labelnames"] + call.args[2:3]
        yield Metric(call.func.id, name, tuple(ast.literal_eval(given[0])) if given else (), meaning)


def table() -> list[tuple[str, str, str, str]]:
    """(name, kind, labels, meaning)."""
    endings = {"Counter": "_total"}
    return [
        (
            f"`{one.name}{endings.get(one.kind, '')}`",
            one.kind.lower(),
            ", ".join(map("`{}`".format, one.labels)),
            one.meaning,
        )
        for one in declared()
    ]
