"""docs/deploy.md names every timeout in the path with the value that it really has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from api.arrival import GOODBYE_SECONDS, MESSAGE_SECONDS
from api.departure import SEND_SECONDS
from runners.probe import PROBE_SECONDS
from runners.prompt_encoder import PromptEncoder
from runners.speech_engine import STALL_SECONDS
from tests.kserve.budgets import EMBEDDED_LOAD_SECONDS, FULL_SIZE_LOAD_SECONDS, probe_seconds
from tests.kserve.knative_annotation_rules import PROGRESS_DEADLINE
from tests.kserve.knative_spec_rules import MAX_TIMEOUT_SECONDS
from tests.kserve.manifests import ROOT, of_kind, render, services
from tests.kserve.quantity import seconds
from text.frontend import MAX_INPUT_CHARS

TEXT = (ROOT / "docs/deploy.md").read_text()
# What neither the manifests nor the server decide: the cluster's defaults, and the project's own promise.
FROM_OUTSIDE = {
    "`max-revision-timeout-seconds`": MAX_TIMEOUT_SECONDS,
    "`revision-idle-timeout-seconds`": 0,
    "activator's grace period": 600,
    "queue-proxy, quiet period": 30,
    "drain": 0,
}


@dataclass(frozen=True)
class Row:
    name: str
    where: str
    value: str
    why: str

    @property
    def seconds(self) -> float:
        match = re.fullmatch(r"(?:at least )?([0-9]+) s", self.value)
        assert match, f"{self.name}: {self.value!r} is no value in seconds"
        return float(match.group(1))


def _rows() -> dict[str, Row]:
    section = TEXT.split("## Every timeout in the path")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[1:]]
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: row for row in rows}


def _traffic(service: Any) -> float:
    """The time limit of a BentoML service, which the decorator made of the class."""
    return service.config["traffic"]["timeout"]


def _real() -> dict[str, float]:
    (base,), (cpu,), (standard,) = services("base"), services("overlays/cpu"), services("overlays/standard")
    predictor, classic = base["spec"]["predictor"], standard["spec"]["predictor"]
    container, fast = predictor["containers"][0], cpu["spec"]["predictor"]["containers"][0]
    annotations, timeout = base["metadata"]["annotations"], predictor["timeout"]
    window = seconds(annotations["autoscaling.knative.dev/window"])
    panic = float(annotations["autoscaling.knative.dev/panic-window-percentage"])
    deadline = seconds(annotations[PROGRESS_DEADLINE])
    (monitor,) = of_kind(render("base"), "PodMonitor")
    deadlines = {
        job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
        for job in of_kind(render("overlays/warm"), "CronJob")
    }
    (job_deadline,) = deadlines
    return {
        "`timeout`, Knative mode": timeout,
        "`responseStartTimeoutSeconds`": timeout,
        "wait in the activator": timeout,
        "grace period, Knative mode": timeout,
        "`progress-deadline`": deadline,
        "`progress-deadline`, `cpu`": seconds(cpu["metadata"]["annotations"][PROGRESS_DEADLINE]),
        "activation": deadline + 30,
        "load, full-size weights": FULL_SIZE_LOAD_SECONDS,
        "load, embedded voice": EMBEDDED_LOAD_SECONDS,
        "`startupProbe`": probe_seconds(container["startupProbe"]),
        "`startupProbe`, `cpu`": probe_seconds(fast["startupProbe"]),
        "readiness, one question": container["readinessProbe"]["timeoutSeconds"],
        "readiness, until traffic stops": probe_seconds(container["readinessProbe"]),
        "liveness, until a restart": probe_seconds(container["livenessProbe"]),
        "`window`": window,
        "panic window": window * panic / 100,
        "`scale-down-delay`": seconds(annotations["autoscaling.knative.dev/scale-down-delay"]),
        "retention at zero": seconds(annotations["autoscaling.knative.dev/scale-to-zero-pod-retention-period"]),
        "`timeout`, Standard mode": classic["timeout"],
        "`preStop`": classic["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"],
        "grace period, Standard mode": classic["terminationGracePeriodSeconds"],
        "scale-down, Standard mode": classic["autoScaling"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"],
        "warm-up job": job_deadline,
        "scrape": seconds(monitor["spec"]["podMetricsEndpoints"][0]["scrapeTimeout"]),
        "question to a runner": PROBE_SECONDS,
        "reference encoding": _traffic(PromptEncoder),
        "stalled reader": SEND_SECONDS,
        "stalled reader, in the engine": STALL_SECONDS,
        "arriving request": MESSAGE_SECONDS,
        "arriving request, after SIGTERM": GOODBYE_SECONDS,
    }


def test_every_row_has_the_real_value():
    real, rows = _real(), _rows()
    yours = {name for name, row in rows.items() if row.value.startswith("at least ")}
    assert rows.keys() - yours == real.keys() | FROM_OUTSIDE.keys()
    for name, value in {**real, **FROM_OUTSIDE}.items():
        assert rows[name].seconds == value, f"the table says {rows[name].value} for {name}, it is {value:g} s"
        assert rows[name].where and rows[name].why


def test_what_others_set_encloses_what_is_set_here():
    rows = _rows()
    wait, stream = rows["wait in the activator"].seconds, rows["`timeout`, Knative mode"].seconds
    assert rows["caller, whole request"].seconds >= wait + stream
    assert rows["load balancer and gateway, idle"].seconds >= wait
    assert rows["`max-revision-timeout-seconds`"].seconds >= stream
    assert rows["activator's grace period"].seconds >= stream
    assert rows["stalled reader, in the engine"].seconds > rows["stalled reader"].seconds
    assert rows["readiness, one question"].seconds > rows["question to a runner"].seconds


def test_no_timed_annotation_is_without_a_row():
    (base,) = services("base")
    timed = {
        name.rpartition("/")[2]
        for name, value in base["metadata"]["annotations"].items()
        if re.fullmatch("[0-9]+[smh]", value)
    }
    assert timed == {"window", "scale-down-delay", "scale-to-zero-pod-retention-period", "progress-deadline"}


def test_the_prose_uses_the_limits_that_hold():
    assert f"{MAX_INPUT_CHARS:,} characters" in TEXT
    (base,) = services("base")
    predictor = base["spec"]["predictor"]
    assert f"`containerConcurrency: {predictor['containerConcurrency']}`" in TEXT
    assert f"`scaleTarget: {predictor['scaleTarget']}`" in TEXT


@pytest.mark.parametrize("folder", sorted((ROOT / "kserve/overlays").iterdir()), ids=lambda path: path.name)
def test_every_overlay_is_in_the_docs(folder):
    assert f"| `kserve/overlays/{folder.name}` |" in TEXT
