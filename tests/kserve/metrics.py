"""Which series exist: what the project's code declares, and what the platform adds; with their labels."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from launch.operations.metrics import declared
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


@lru_cache(maxsize=1)
def exported() -> dict[str, Series]:
    """By the names that Prometheus shows: a counter ends in _total, a histogram has _bucket, _sum and _count."""
    series: dict[str, Series] = {}
    for metric in declared():
        labels = frozenset(metric.labels) | SCRAPE_LABELS
        if metric.kind == "Counter":
            series[f"{metric.name}_total"] = Series("counter", labels)
        elif metric.kind == "Gauge":
            series[metric.name] = Series("gauge", labels)
        else:
            series[f"{metric.name}_bucket"] = Series("bucket", labels | {"le"})
            series[f"{metric.name}_count"] = series[f"{metric.name}_sum"] = Series("counter", labels)
    return series


@lru_cache(maxsize=1)
def literals() -> frozenset[str]:
    """Every string in the project's code: an error code is one of them."""
    found: set[str] = set()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text()))
            found.update(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(found)
