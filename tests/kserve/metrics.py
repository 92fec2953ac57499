"""Which series exist: what the project's code declares, and what the platform adds; with their labels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tests.kserve.manifests import ROOT

SOURCES = ("api", "audio", "runners", "text")
# What the scrape writes into every series of a pod.
SCRAPE_LABELS = frozenset(["namespace", "pod", "revision", "isvc"])


@dataclass(frozen=True)
class Series:
    kind: str  # counter, gauge or bucket
    labels: frozenset[str]


# Knative Serving by its Prometheus exporter, and kube-state-metrics.
PLATFORM = {
    "kn_revision_request_queued": Series("gauge", frozenset(["k8s_namespace_name", "kn_revision_name"])),
    "kn_revision_pods_count": Series("gauge", frozenset(["k8s_namespace_name", "kn_revision_name"])),
    "kube_pod_container_status_restarts_total": Series("counter", frozenset(["namespace", "pod", "container"])),
}


def _calls() -> Iterator[tuple[str, str, ast.Call]]:
    """(Counter | Gauge | Histogram, metric name, call) of every metric declared in the project's code."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                    continue
                name = node.args[0]
                if isinstance(name, ast.Constant) and str(name.value).startswith("cosyserve_"):
                    yield node.func.id, str(name.value), node


@lru_cache(maxsize=1)
def exported() -> dict[str, Series]:
    """By the names that Prometheus shows: a counter ends in _total, a histogram has _bucket, _sum and _count."""
    series: dict[str, Series] = {}
    for kind, name, call in _calls():
        labels = frozenset(_labels(call)) | SCRAPE_LABELS
        if kind == "Counter":
            series[f"{name}_total"] = Series("counter", labels)
        elif kind == "Gauge":
            series[name] = Series("gauge", labels)
        elif kind == "Histogram":
            series[f"{name}_bucket"] = Series("bucket", labels | {"le"})
            series[f"{name}_count"] = series[f"{name}_sum"] = Series("counter", labels)
    return series


def _labels(call: ast.Call) -> list[str]:
    given = [item.value for item in call.keywords if item.arg == "labelnames"] + call.args[2:3]
    return list(ast.literal_eval(given[0])) if given else []


@lru_cache(maxsize=1)
def literals() -> frozenset[str]:
    """Every string in the project's code: an error code is one of them."""
    found: set[str] = set()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text()))
            found.update(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(found)
