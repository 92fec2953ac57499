"""The canary's way is decided by what Prometheus measured, and what it does not know never counts as success."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kserve.fake_prometheus import Series
from tests.kserve.manifests import MANIFESTS
from tests.kserve.rollout_codes import error_codes
from tests.kserve.rollout_stage import FIRST, SECOND, THIRD, Stage, manifest

MONITORING = MANIFESTS / "overlays/monitoring"
# What probes and calls that are not served are answered with, and what an operator or a client has set: no doing of a
# revision.
UNCOUNTED = {
    "not_ready",
    "unload_unsupported",
    "explain_unsupported",
    "rate_limited",
    "deadline_exceeded",
    "issuer_unavailable",
    "voice_store_off",
    "voice_store_read_only",
}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as running:
        running.live()
        for revision in (FIRST, SECOND):
            running.prometheus.series[revision] = Series()
        yield running


def test_a_good_canary_goes_step_by_step_to_promotion(stage: Stage) -> None:
    outcome = stage.run("canary", "--image", "cosyserve:2", "--analyse")
    assert outcome.code == 0, outcome.err
    percents = [write.body["spec"]["predictor"].get("canaryTrafficPercent") for write in stage.cluster.written()]
    assert percents == [5, 25, 50, 100, None]
    assert (stage.shares(), stage.image) == ({SECOND: 100}, "cosyserve:2")
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND
    assert "P95 TTFA 0.400 s, P95 RTF 0.300, errors 0.00%, continuity 100.00%" in outcome.out
    again = stage.run("watch")
    assert again.code == 0
    assert "no canary is under way" in again.out


def test_the_steps_are_a_choice_and_watch_goes_on_from_where_the_canary_is(stage: Stage) -> None:
    stage.canary(percent=30)
    outcome = stage.run("watch", "--steps", "20,60")
    assert outcome.code == 0, outcome.err
    percents = [write.body["spec"]["predictor"].get("canaryTrafficPercent") for write in stage.cluster.written()]
    assert percents == [30, 60, None]


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"ttfa": 1.6}, "P95 TTFA is 1.600 s, over 1.500 s"),
        ({"ttfa": 0.6}, "P95 TTFA is 0.600 s, 1.50 times the stable revision's 0.400 s, over 1.25 times"),
        ({"rtf": 0.9}, "P95 RTF is 0.900, over 0.800"),
        ({"rtf": 0.4}, "P95 RTF is 0.400, 1.33 times the stable revision's 0.300"),
        ({"faults": 4}, "the error rate is 2.00%, over 1.00%"),
        ({"faults": 1.6}, "the excess of errors is 0.80%, over 0.50%"),
        ({"broken_streams": 3}, "continuity is 98.00%, under 99.00%"),
        ({"broken_streams": 1.2}, "continuity is 99.20%, under 0.995 times the stable revision's 100.00%"),
    ],
)
def test_each_metric_can_roll_back_by_its_bound_and_by_comparison(
    stage: Stage, figures: dict[str, float], reason: str
) -> None:
    stage.canary(percent=25)
    stage.prometheus.change(SECOND, **figures)
    outcome = stage.run("watch")
    assert outcome.code == 1
    assert f"rolled back: {reason}" in outcome.err
    assert (stage.image, stage.percent, stage.shares()) == ("cosyserve:1", None, {THIRD: 100})


def test_bounds_can_be_set_and_metrics_left_out(stage: Stage) -> None:
    stage.canary(percent=50)
    stage.prometheus.change(SECOND, ttfa=1.6, streams=None)
    looser = ("--ttfa-seconds", "2", "--ttfa-ratio", "5", "--skip", "continuity")
    outcome = stage.run("watch", "--steps", "100", *looser)
    assert outcome.code == 0, outcome.err
    assert stage.shares() == {SECOND: 100}


def test_a_canary_that_turns_bad_at_100_percent_is_rolled_back_against_what_the_stable_one_showed(stage: Stage) -> None:
    stage.canary(percent=50)
    running = stage.start("watch")
    running.wait_line("100 % canary")
    stage.prometheus.change(SECOND, ttfa=0.6)
    outcome = running.wait()
    assert outcome.code == 1
    assert "1.50 times the stable revision's 0.400 s" in outcome.err
    assert (stage.image, stage.shares()) == ("cosyserve:1", {THIRD: 100})


@pytest.mark.parametrize(
    ("figures", "gap"),
    [
        ({"requests": None}, f"Prometheus has no requests, errors of {SECOND}"),
        ({"requests": math.nan}, f"Prometheus has no requests, errors of {SECOND}"),
        ({"requests": 20}, f"{SECOND} has 20 of 50 requests"),
        ({"ttfa": None}, f"Prometheus has no ttfa of {SECOND}"),
        ({"ttfa": math.nan}, f"Prometheus has no ttfa of {SECOND}"),
        ({"rtf": math.nan}, f"Prometheus has no rtf of {SECOND}"),
        ({"faults": math.nan}, f"Prometheus has no errors of {SECOND}"),
        ({"streams": 0}, f"Prometheus has no continuity of {SECOND}"),
    ],
)
def test_a_missing_number_is_no_success(stage: Stage, figures: dict[str, float | None], gap: str) -> None:
    stage.canary(percent=50)
    stage.prometheus.change(SECOND, **figures)
    outcome = stage.run("watch", "--without-data", "stop")
    assert outcome.code == 1
    assert re.search(rf"no verdict after \d+ s: {gap}; the canary stays at 50 %", outcome.err)
    assert stage.shares() == {FIRST: 50, SECOND: 50}


@pytest.mark.parametrize(
    ("illness", "said"),
    [
        ("error", "Prometheus refuses a query: query timed out"),
        ("not-json", "answers 502 without a query result"),
        ("refuse", "cannot be reached"),
        ("nested", "answers 200 without a query result"),
        ("slow", "cannot be reached (ReadTimeout"),
        ("trickle", "cannot be reached (ReadTimeout"),
        ("twice", "answers one query with 2 numbers"),
        ("empty", "Prometheus has no requests"),
    ],
)
def test_a_prometheus_that_is_ill_ends_in_a_rollback(stage: Stage, illness: str, said: str) -> None:
    stage.canary(percent=50)
    stage.prometheus.illness = illness
    outcome = stage.run("watch", *(["--query-timeout", "0.2"] if illness in ("slow", "trickle") else []))
    assert outcome.code == 1
    assert "rolled back: no verdict after" in outcome.err
    assert said in outcome.err
    assert stage.image == "cosyserve:1"


def test_a_stable_revision_without_numbers_is_no_success_either(stage: Stage) -> None:
    stage.canary(percent=50)
    stage.prometheus.change(FIRST, requests=3)
    outcome = stage.run("watch", "--without-data", "stop")
    assert outcome.code == 1
    assert f"{FIRST} has 3 of 50 requests" in outcome.err


def test_numbers_that_come_late_are_waited_for(stage: Stage) -> None:
    stage.canary(percent=50)
    stage.prometheus.illness = "error"
    running = stage.start("watch", "--patience", "30", "--steps", "100")
    running.wait_line("waiting for numbers: Prometheus refuses a query")
    stage.prometheus.illness = ""
    outcome = running.wait()
    assert outcome.code == 0, outcome.err
    assert stage.shares() == {SECOND: 100}


def test_an_analysed_canary_that_never_starts_is_rolled_back(stage: Stage) -> None:
    outcome = stage.run("canary", "--image", "cosyserve:broken", "--analyse")
    assert outcome.code == 1
    assert "rolled back" in outcome.err
    assert "exit code 1" in outcome.err
    assert (stage.image, stage.percent) == ("cosyserve:1", None)


def test_ctrl_c_leaves_the_canary_where_it_is_and_watch_goes_on(stage: Stage) -> None:
    stage.canary(percent=25)
    running = stage.start("watch", "--interval", "60")
    running.wait_line(f"25 % canary {SECOND}")
    outcome = running.interrupt()
    assert outcome.code == 1
    assert "The canary stays where it is: go on with watch, or end it with promote or rollback." in outcome.err
    assert stage.shares() == {FIRST: 75, SECOND: 25}
    assert stage.run("watch").code == 0
    assert stage.shares() == {SECOND: 100}


@pytest.mark.parametrize("line", ["  5 % canary", " 50 % canary", "100 % canary"])
def test_an_analysis_that_was_killed_goes_on(stage: Stage, line: str) -> None:
    running = stage.start("canary", "--image", "cosyserve:2", "--analyse")
    running.wait_line(line)
    running.kill()
    outcome = stage.run("watch")
    assert outcome.code == 0, outcome.err
    assert (stage.shares(), stage.percent) == ({SECOND: 100}, None)
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND


def test_somebody_elses_change_stops_the_analysis_and_is_not_touched(stage: Stage) -> None:
    stage.canary(percent=25)
    running = stage.start("watch", "--interval", "60")
    running.wait_line("25 % canary")
    assert stage.run("canary", "--percent", "40").code == 0
    outcome = running.wait()
    assert outcome.code == 1
    assert "somebody else changed cosyvoice during the analysis" in outcome.err
    assert stage.shares() == {FIRST: 60, SECOND: 40}


def test_the_queries_ask_for_one_revision(stage: Stage) -> None:
    stage.canary(percent=50)
    assert stage.run("watch", "--steps", "100").code == 0
    assert all('namespace="tts",revision="cosyvoice-predictor-0000' in query for query in stage.prometheus.queries)


def test_the_queries_are_those_that_a_real_prometheus_was_asked(stage: Stage) -> None:
    """Prometheus 2.42 was asked these in these very words, of a pod whose series began within the window.

    It counted 61 requests of 61. `increase` alone sees only what comes after the first scrape of a series.
    """
    stage.canary(percent=50)
    assert stage.run("watch", "--steps", "100").code == 0
    series = f'namespace="tts",revision="{SECOND}"'
    asked = [
        re.sub(r"\b\d+s\b", "WINDOW", query.replace(series, "SERIES"))
        for query in stage.prometheus.queries
        if SECOND in query
    ]
    faults = (
        '"engine_error|nonfinite_audio|internal_error|engine_unavailable|overloaded|loading|draining'
        '|voice_damaged|voice_store_full|voice_store_unavailable"'
    )
    counters = (
        "cosyserve_requests_total{SERIES}",
        f"cosyserve_requests_total{{SERIES,outcome=~{faults}}}",
        "cosyserve_streams_total{SERIES}",
        "cosyserve_discontinuous_streams_total{SERIES}",
    )
    assert asked[:6] == [
        *(
            f"sum((increase({it}[WINDOW]) and {it} offset WINDOW) or ({it} unless {it} offset WINDOW))"
            for it in counters
        ),
        "histogram_quantile(0.95, sum by (le) (rate(cosyserve_ttfa_seconds_bucket{SERIES}[WINDOW])))",
        "histogram_quantile(0.95, sum by (le) (rate(cosyserve_rtf_bucket{SERIES}[WINDOW])))",
    ]


def test_analysis_alert_and_dashboard_count_the_same_outcomes_and_they_are_the_servers_own(stage: Stage) -> None:
    stage.canary(percent=50)
    assert stage.run("watch", "--steps", "100").code == 0
    alerts, dashboard = ((MONITORING / name).read_text() for name in ("prometheusrule.yaml", "dashboard.json"))
    counted = [
        {frozenset(found.split("|")) for found in re.findall(r'outcome=~"([^"]*)"', text)}
        for text in (*stage.prometheus.queries, alerts, dashboard.replace('\\"', '"'))
    ]
    assert counted[-2] and counted[-1]
    (outcomes,) = set().union(*counted)
    server, client = error_codes()
    assert len(client) > 30 and {"invalid_tensor", "answer_too_long", "voice_not_found"} <= client
    assert outcomes.isdisjoint(client | {"ok", "cancelled"})
    assert outcomes == server - UNCOUNTED


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_an_api_that_is_away_for_a_moment_does_not_end_an_automatic_rollback(stage: Stage, method: str) -> None:
    stage.canary(percent=25)
    stage.prometheus.change(SECOND, ttfa=1.6)

    def fault() -> None:
        # The verdict follows the last query at once, so the next call to the API is the rollback's.
        stage.cluster.faults[method] = 1

    stage.prometheus.on_query = fault
    outcome = stage.run("watch")
    assert outcome.code == 1
    assert "rolled back: P95 TTFA is 1.600 s" in outcome.err
    assert stage.cluster.faults[method] == 0
    assert "trying again: the Kubernetes API has a fault (503)" in outcome.out
    assert (stage.image, stage.percent, stage.shares()) == ("cosyserve:1", None, {THIRD: 100})


@pytest.mark.parametrize("away", [1, 10_000])
def test_an_api_that_is_away_at_a_step_leaves_no_canary_for_good(stage: Stage, away: int) -> None:
    stage.canary(percent=25)
    stage.prometheus.on_query = lambda: stage.cluster.faults.update(PUT=away)
    running = stage.start("watch", timeout=1)
    if away > 1:
        running.wait_line("rolling back: the Kubernetes API has a fault (503)")
        stage.cluster.faults["PUT"] = 0
    outcome = running.wait()
    assert stage.percent is None
    assert (outcome.code, stage.shares()) == ((0, {SECOND: 100}) if away == 1 else (1, {THIRD: 100})), outcome.err


def test_a_manifest_can_be_analysed_too(stage: Stage) -> None:
    file = stage.file(manifest("cosyserve:2"))
    outcome = stage.run("canary", "-f", file, "--analyse", "--percent", "50", "--steps", "100")
    assert outcome.code == 0, outcome.err
    assert stage.shares() == {SECOND: 100}
