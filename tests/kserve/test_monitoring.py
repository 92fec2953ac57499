"""Dashboards, alerts and scaling queries read series that exist, by their labels, with thresholds that can fire."""

from __future__ import annotations

import json
import re

import pytest

from api import telemetry
from tests.kserve import promql
from tests.kserve.expressions import DASHBOARD, PANELS, TARGETS, rules, scalers
from tests.kserve.manifests import of_kind, render, services
from tests.kserve.metrics import PLATFORM, exported, literals

VARIABLES = [item for item in DASHBOARD["templating"]["list"] if item["type"] == "query"]
OUTCOME = re.compile("[a-z_]+")


def _check(expression: str) -> None:
    tree = promql.parse(expression)
    known = {**exported(), **PLATFORM}
    for reading in promql.readings(tree):
        assert reading.metric in known, f"no series {reading.metric}"
        series = known[reading.metric]
        names = {name for name, _ in reading.matchers}.union(*reading.grouped)
        assert names <= series.labels, f"{reading.metric} has no label {names - series.labels}"
        ranged = promql.RANGED & set(reading.inside)
        assert bool(ranged) == (series.kind in ("counter", "bucket")), f"{reading.metric} is a {series.kind}"
        if series.kind == "bucket":
            assert "histogram_quantile" in reading.inside
            assert "le" in reading.grouped[0], "without le there is no quantile"
        for name, value in reading.matchers:
            if name == "outcome":
                unknown = set(OUTCOME.findall(value)) - literals()
                assert not unknown, f"no outcome {unknown}"
    for node in promql.binaries(tree):
        _check_match(node)


def _check_match(node) -> None:
    """Both sides of an operator between series keep the labels that they are matched on."""
    left, right = promql.kept_labels(node.lhs), promql.kept_labels(node.rhs)
    if left is None or right is None:
        return
    on = frozenset(node.modifier.matching.labels) if node.modifier and node.modifier.matching else None
    assert left == right if on is None else on <= left & right, f"{left} against {right}"


def test_the_projects_series_are_found_in_its_code():
    names = exported().keys()
    assert {"cosyserve_requests_total", "cosyserve_ttfa_seconds_bucket", "cosyserve_queue_depth"} <= names
    assert {"route", "outcome", "revision"} <= exported()["cosyserve_requests_total"].labels


def test_an_alert_says_what_it_means_and_reads_what_is_there():
    for name, rule in rules().items():
        _check(rule["expr"])
        used = set(re.findall(r"\$labels\.([a-z0-9_]+)", " ".join(rule["annotations"].values())))
        kept = promql.kept_labels(promql.parse(rule["expr"]))
        assert kept is not None and used <= kept, f"{name}: the text uses {used}, the result has {kept}"


def test_what_hurts_has_an_alert():
    metrics = {name: {r.metric for r in promql.readings(promql.parse(rule["expr"]))} for name, rule in rules().items()}
    assert "cosyserve_ttfa_seconds_bucket" in metrics["CosyServeSlowFirstAudio"]
    assert metrics["CosyServeErrors"] == {"cosyserve_requests_total"}
    assert "cosyserve_realtime_headroom" in metrics["CosyServeBelowRealtime"]
    assert "cosyserve_queue_depth" in metrics["CosyServeQueueStuck"]
    assert metrics["CosyServeOverloaded"] == {"cosyserve_requests_total"}
    assert metrics["CosyServeNonfiniteAudio"] == {"cosyserve_nonfinite_audio_total"}
    assert metrics["CosyServeNoReadyReplica"] == {"kn_revision_request_queued", "kn_revision_pods_count"}
    assert metrics["CosyServeRestarts"] == {"kube_pod_container_status_restarts_total"}
    assert "cosyserve_discontinuous_streams_total" in metrics["CosyServeGaps"]


@pytest.mark.parametrize(
    ("alert", "op", "low", "high"),
    [
        ("CosyServeSlowFirstAudio", ">", 0.5, 5),
        ("CosyServeErrors", ">", 0.001, 0.1),
        ("CosyServeBelowRealtime", "<", 1, 1),
        ("CosyServeGaps", ">", 0.005, 0.2),
        ("CosyServeOverloaded", ">", 0.01, 0.5),
        ("CosyServeNonfiniteAudio", ">", 0, 0),
        ("CosyServeQueueStuck", ">", 0, 0),
        ("CosyServeNoReadyReplica", ">", 0, 0),
        ("CosyServeRestarts", ">", 0, 0),
    ],
)
def test_a_threshold_is_sane(alert, op, low, high):
    first = promql.comparisons(promql.parse(rules()[alert]["expr"]))[0]
    assert first.op == op
    assert low <= first.threshold <= high


def test_the_latency_threshold_is_a_bucket_of_the_histogram():
    # Between two bounds a quantile is a guess; above the last it can never fire.
    (first,) = promql.comparisons(promql.parse(rules()["CosyServeSlowFirstAudio"]["expr"]))
    bounds = {float(sample.labels["le"]) for sample in _buckets()}
    assert first.threshold in bounds - {max(bounds)}


def _buckets():
    telemetry.TTFA.labels("test")
    (family,) = telemetry.TTFA.collect()
    return [sample for sample in family.samples if sample.name.endswith("_bucket") and sample.labels["le"] != "+Inf"]


def test_a_clients_mistake_is_no_server_error():
    (counted, total) = promql.readings(promql.parse(rules()["CosyServeErrors"]["expr"]))
    codes = set(OUTCOME.findall(dict(counted.matchers)["outcome"]))
    assert codes.isdisjoint({"ok", "cancelled", "input_empty", "voice_not_found", "invalid_json"})
    assert {"engine_error", "internal_error", "overloaded"} <= codes
    assert total.matchers == ()


@pytest.mark.parametrize(("title", "expression"), TARGETS)
def test_a_panel_reads_what_is_there(title, expression):
    _check(expression)


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda item: item["name"])
def test_a_dashboard_variable_lists_a_label_that_is_there(variable):
    found = re.fullmatch(r"label_values\((.+), ([a-z]+)\)", variable["query"]["query"])
    assert found
    selector, label = found.groups()
    (reading,) = promql.readings(promql.parse(selector))
    assert {label, *(name for name, _ in reading.matchers)} <= exported()[reading.metric].labels


def test_the_dashboard_shows_every_series_of_the_project():
    shown = {reading.metric for _, expression in TARGETS for reading in promql.readings(promql.parse(expression))}
    families = {name for name in exported() if not name.endswith(("_sum", "_count"))}
    assert families <= shown


def test_panels_explain_themselves_and_do_not_overlap():
    cells: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in DASHBOARD["panels"]:
        box = panel["gridPos"]
        taken = {(box["x"] + x, box["y"] + y) for x in range(box["w"]) for y in range(box["h"])}
        assert not taken & cells and box["x"] + box["w"] <= 24, panel["title"]
        cells |= taken
    for panel in PANELS:
        assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert [target["refId"] for target in panel["targets"]] == sorted({t["refId"] for t in panel["targets"]})


def test_panel_filters_are_variables_of_the_dashboard():
    names = {item["name"] for item in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(DASHBOARD["panels"])))
    assert used <= names


def test_the_overlay_carries_the_alerts():
    (rule,) = of_kind(render("overlays/monitoring"), "PrometheusRule")
    assert {item["alert"]: item for group in rule["spec"]["groups"] for item in group["rules"]} == rules()


def test_the_config_map_carries_the_dashboard():
    (config,) = of_kind(render("overlays/monitoring"), "ConfigMap")
    assert json.loads(config["data"]["cosyserve.json"]) == DASHBOARD
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_scaling_reads_this_services_own_series():
    queries = list(scalers())
    assert len(queries) >= 6
    for overlay, query, threshold in queries:
        _check(query)
        (reading,) = promql.readings(promql.parse(query))
        (isvc,) = services(overlay)
        assert dict(reading.matchers) == {
            "namespace": isvc["metadata"]["namespace"],
            "isvc": isvc["metadata"]["name"],
        }
        assert threshold >= 1


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(cosyserve_queue_dept)",
        "sum by (revison) (rate(cosyserve_requests_total[5m]))",
        'sum(rate(cosyserve_requests_total{outcome="engine_eror"}[5m]))',
        "sum(cosyserve_requests_total)",
        "sum(rate(cosyserve_queue_depth[5m]))",
        "histogram_quantile(0.95, sum by (isvc) (rate(cosyserve_ttfa_seconds_bucket[5m])))",
        "sum by (isvc) (rate(cosyserve_requests_total[5m])) / sum by (pod) (rate(cosyserve_requests_total[5m]))",
    ],
)
def test_the_check_finds_a_slip_of_the_pen(wrong):
    with pytest.raises(AssertionError):
        _check(wrong)


def test_the_check_refuses_what_does_not_parse():
    with pytest.raises(ValueError, match=r".+"):
        _check("sum(rate(cosyserve_requests_total{[5m]))")
