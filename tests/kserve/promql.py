"""What a PromQL expression reads: parsed, so that a slip of the pen fails here and not on a dashboard at night."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser

RANGED = frozenset(["rate", "increase", "irate"])


@dataclass(frozen=True)
class Reading:
    """A selector in an expression. `matchers`: (label, value); `inside`: the functions and aggregations around it,
    innermost first; `grouped`: the labels that each aggregation around it keeps."""

    metric: str
    matchers: tuple[tuple[str, str], ...]
    inside: tuple[str, ...]
    grouped: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Comparison:
    """`something op threshold`."""

    op: str
    threshold: float
    metrics: frozenset[str]


def parse(expression: str) -> Any:
    """The tree. Grafana's variables stand for what they become. Raises ValueError."""
    return promql_parser.parse(re.sub(r"\[\$__(rate_)?interval\]", "[5m]", expression))


def readings(node: Any, inside: tuple[str, ...] = (), grouped: tuple[frozenset[str], ...] = ()) -> Iterator[Reading]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name is not None, "every selector here names its metric"
        yield Reading(node.name, tuple((item.name, item.value) for item in node.matchers.matchers), inside, grouped)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from readings(node.vector_selector, inside, grouped)
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from readings(argument, (node.func.name, *inside), grouped)
    elif isinstance(node, promql_parser.AggregateExpr):
        keeps = frozenset(node.modifier.labels) if node.modifier else frozenset()
        yield from readings(node.expr, (str(node.op), *inside), (keeps, *grouped))
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from readings(node.lhs, inside, grouped)
        yield from readings(node.rhs, inside, grouped)
    elif isinstance(node, (promql_parser.ParenExpr, promql_parser.UnaryExpr, promql_parser.SubqueryExpr)):
        yield from readings(node.expr, inside, grouped)


def binaries(node: Any) -> Iterator[Any]:
    if isinstance(node, promql_parser.BinaryExpr):
        yield node
        yield from binaries(node.lhs)
        yield from binaries(node.rhs)
    elif isinstance(node, (promql_parser.ParenExpr, promql_parser.AggregateExpr)):
        yield from binaries(node.expr)


def comparisons(node: Any) -> list[Comparison]:
    """Comparisons with a number, in the order of the text."""
    return [
        Comparison(str(item.op), item.rhs.val, frozenset(reading.metric for reading in readings(item.lhs)))
        for item in binaries(node)
        if str(item.op) in ("<", ">", "<=", ">=", "==", "!=") and isinstance(item.rhs, promql_parser.NumberLiteral)
    ]


def kept_labels(node: Any) -> frozenset[str] | None:
    """The labels of the result where an aggregation decides them, else None."""
    if isinstance(node, promql_parser.AggregateExpr):
        return frozenset(node.modifier.labels) if node.modifier else frozenset()
    if isinstance(node, promql_parser.ParenExpr):
        return kept_labels(node.expr)
    if isinstance(node, promql_parser.Call) and node.func.name == "histogram_quantile":
        inner = kept_labels(node.args[1])
        return None if inner is None else inner - {"le"}
    if isinstance(node, promql_parser.BinaryExpr):
        return kept_labels(node.lhs)
    return None
