"""Every PromQL expression of the project: of the dashboard, the alerts, what scales, and the rollout command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import yaml

from tests.kserve.manifests import MANIFESTS, OVERLAYS, of_kind, render, services

DASHBOARD = json.loads((MANIFESTS / "overlays/monitoring/dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
_ROLLOUT = """
import sys
sys.path[0:0] = [sys.argv[1]]
import analysis

class Nothing:
    def json(self):
        return {"status": "success", "data": {"result": []}}

def exchange(method, url, timeout, params):
    print(params["query"])
    return Nothing()

analysis.exchange = exchange
analysis.Prometheus("http://prometheus", "tts").measure("cosyvoice-00001", 300)
"""


def rules() -> dict[str, dict]:
    """The alerts by name."""
    rule = yaml.safe_load((MANIFESTS / "overlays/monitoring/prometheusrule.yaml").read_text())
    return {item["alert"]: item for group in rule["spec"]["groups"] for item in group["rules"]}


def alerts() -> list[str]:
    return [rule["expr"] for rule in rules().values()]


def dashboard_targets() -> list[str]:
    return [expression for _, expression in TARGETS]


def scalers() -> Iterator[tuple[str, str, float]]:
    """(overlay, query, threshold) of everything that scales by Prometheus."""
    for overlay in OVERLAYS:
        for isvc in services(overlay):
            for item in isvc["spec"]["predictor"].get("autoScaling", {}).get("metrics", []):
                yield overlay, item["external"]["metric"]["query"], float(item["external"]["target"]["value"])
        for item in of_kind(render(overlay), "ScaledObject"):
            for trigger in item["spec"]["triggers"]:
                if trigger["type"] == "prometheus":
                    yield overlay, trigger["metadata"]["query"], float(trigger["metadata"]["threshold"])


def scaling_queries() -> list[str]:
    return [query for _, query, _ in scalers()]


def rollout_queries() -> list[str]:
    """What a canary's analysis asks for."""
    command = [sys.executable, "-c", _ROLLOUT, str(MANIFESTS)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
