"""The command: what it prints, the sweep's choice, the chart, and the measuring of a running service."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from benchmarks.autoscale import SHIPPED, main
from benchmarks.scaling.kpa import KpaSettings
from benchmarks.scaling.pods import TABLES, Load, Outcome, Request, ServiceTimes
from benchmarks.scaling.simulation import Run
from benchmarks.scaling.summary import Summary

HOUR = ["--duration", "3600", "--rate", "0.5"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(arguments)
    return capsys.readouterr().out


def rows(text: str) -> list[dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_one_run_is_one_row_and_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "simulate", "--trace", "constant", *HOUR)
    (row,) = rows(first)
    assert int(row["requests"]) == pytest.approx(1800, rel=0.1)
    assert float(row["pod-hours"]) > 0.9
    assert first == printed(capsys, "simulate", "--trace", "constant", *HOUR)
    assert first != printed(capsys, "simulate", "--trace", "constant", "--seed", "1", *HOUR)


def test_the_price_is_per_pod_hour(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ("--min-scale", "2", "--max-scale", "2", "--initial-scale", "2")
    (row,) = rows(printed(capsys, "simulate", "--trace", "constant", *HOUR, *fixed, "--price", "2.5"))
    assert row["pod-hours"] == "2.00"
    assert row["cost"] == "5.00"


def test_the_sweep_names_the_cheapest_setting_within_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ("--target", "2,4,8", "--container-concurrency", "4,8", "--window", "60,120")
    found = rows(printed(capsys, "sweep", "--trace", "constant", *HOUR, *grid, "--ttfa-p95", "1.0"))
    assert len(found) == 12
    within = [row["within"] == "yes" for row in found]
    assert within == sorted(within, reverse=True)
    cost = [float(row["pod-hours"]) for row in found if row["within"] == "yes"]
    assert cost == sorted(cost)
    assert {row["scaleTarget"] for row in found} == {"2", "4", "8"}
    for row in found:
        assert (row["within"] == "yes") <= (float(row["TTFA P50/P95/P99 s"].split("/")[1]) <= 1.0)


def test_a_sweep_that_finds_nothing_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as failed:
        main(["sweep", "--trace", "constant", *HOUR, "--ttfa-p95", "0.001"])
    assert failed.value.code == 1
    assert "0 of 1 settings" in capsys.readouterr().out


def test_several_workers_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ("sweep", "--trace", "constant", *HOUR, "--target", "2,4")
    assert printed(capsys, *grid) == printed(capsys, *grid, "--workers", "2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--window", "5"], "window must be from 6 to 3600"),
        (["--trace", "missing.csv"], "missing.csv"),
        (["--service-times", "missing.json"], "missing.json"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message) as failed:
        main(["simulate", *arguments])
    assert str(failed.value).startswith("autoscale: error: ")


@pytest.mark.parametrize(
    "values",
    [
        {"label": "x", "source": "y", "blocks_s": [1]},
        {"label": "x", "source": "y", "blocks_s": [1], "loads": [{"streams": 2, "ttfa_s": 1, "rtf": 1}]},
        {"label": "x", "source": "y", "blocks_s": [1], "loads": [{"streams": 1, "ttfa_s": 0, "rtf": 1}]},
        {"label": "x", "source": "y", "blocks_s": [1], "loads": [{"streams": 1, "ttfa_s": 1}]},
    ],
)
def test_a_bad_table_of_service_times_is_refused(tmp_path: Path, values: dict) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps(values))
    with pytest.raises(SystemExit, match="error"):
        main(["simulate", "--service-times", str(path)])


def test_service_times_are_on_straight_lines() -> None:
    def at(streams: int, *loads: Load) -> tuple[float, float]:
        load = ServiceTimes("x", "y", (1.0,), loads).at(streams)
        return load.ttfa_s, load.rtf

    bent = (Load(1, 0.2, 0.1), Load(4, 0.5, 0.4), Load(6, 0.4, 0.3))
    assert at(1, *bent) == (0.2, 0.1)
    assert at(2, *bent) == pytest.approx((0.3, 0.2))
    assert at(5, *bent) == pytest.approx((0.45, 0.35))
    assert at(20, *bent) == (0.4, 0.3)  # a table that improves at its end promises nothing beyond it
    assert at(5, Load(1, 0.2, 0.1), Load(2, 0.4, 0.2)) == pytest.approx((1.0, 0.5))
    assert at(3, Load(1, 0.2, 0.1)) == pytest.approx((0.6, 0.3))


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_table_reads_and_says_where_it_is_from(path: Path) -> None:
    times = ServiceTimes.read(path.stem)
    assert times.source.startswith("Measured" if "ASSUMED" not in times.label else "An assumption")


def test_failed_requests_count_as_endless_waits() -> None:
    requests = [Request(float(number), 5.0) for number in range(20)]
    for request in requests[:18]:
        request.first_audio = request.arrived + 0.5
        request.end(request.arrived + 3, Outcome.SERVED)
    requests[0].dry = True
    requests[18].end(50.0, Outcome.TIMED_OUT)
    requests[19].end(19.0, Outcome.REJECTED)
    summary = Summary.of(Run(requests, pod_seconds=7200.0), 3600.0)
    assert (summary.ttfa_p50, summary.ttfa_p95) == (0.5, float("inf"))
    assert (summary.rejected, summary.timed_out, summary.pod_hours, summary.mean_pods) == (1, 1, 2.0, 2.0)
    assert summary.dry_share == pytest.approx(1 / 18)
    assert not summary.within(60)


def test_the_chart_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "run.png"
    printed(capsys, "simulate", "--trace", "burst", *HOUR, "--plot", str(chart))
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_chart_without_matplotlib_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="needs matplotlib"):
        main(["simulate", "--trace", "patchy", *HOUR, "--plot", str(tmp_path / "run.png")])


def seconds(text: str) -> int:
    """Of a Go duration in whole minutes or seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def test_the_defaults_are_what_the_manifest_ships() -> None:
    service = yaml.safe_load((Path(__file__).parents[2] / "kserve/base/inferenceservice.yaml").read_text("utf-8"))
    annotations = {
        name.removeprefix("autoscaling.knative.dev/"): value
        for name, value in service["metadata"]["annotations"].items()
    }
    predictor = service["spec"]["predictor"]
    assert predictor["scaleMetric"] == "concurrency"
    assert (
        KpaSettings(
            container_concurrency=predictor["containerConcurrency"],
            target=predictor["scaleTarget"],
            min_scale=predictor["minReplicas"],
            max_scale=predictor["maxReplicas"],
            target_utilization_percentage=float(annotations["target-utilization-percentage"]),
            window=seconds(annotations["window"]),
            panic_window_percentage=float(annotations["panic-window-percentage"]),
            panic_threshold_percentage=float(annotations["panic-threshold-percentage"]),
            target_burst_capacity=float(annotations["target-burst-capacity"]),
            initial_scale=int(annotations["initial-scale"]),
            scale_down_delay=seconds(annotations["scale-down-delay"]),
            scale_to_zero_pod_retention_period=seconds(annotations["scale-to-zero-pod-retention-period"]),
        )
        == SHIPPED
    )


SAMPLE_RATE = 1000
BLOCK = bytes(SAMPLE_RATE)  # half a second of 16 bit samples


@contextmanager
def paced_service(first: float, pause: float, blocks: int = 5, status: int = 200) -> Iterator[str]:
    """A service on a free port that speaks `blocks` half seconds: one after `first` seconds, then one each `pause`."""

    async def speech(request: web.Request) -> web.StreamResponse:
        assert (await request.json())["stream"] is True
        if status != 200:
            return web.json_response({"error": {"message": "no"}}, status=status)
        response = web.StreamResponse(headers={"X-Sample-Rate": str(SAMPLE_RATE)})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for number in range(blocks):
            await asyncio.sleep(pause if number else first)
            await response.write(BLOCK)
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/audio/speech", speech)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", 0)
    loop.run_until_complete(site.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_a_running_service_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times.json"
    with paced_service(first=0.2, pause=0.1) as url:
        out = printed(
            capsys,
            "measure",
            "--url",
            url,
            "--streams",
            "1,3",
            "--rounds",
            "2",
            "--passes",
            "2",
            "--write",
            str(path),
            "--label",
            "paced",
        )
    times = ServiceTimes.read(str(path))
    assert times.label == "paced"
    assert times.blocks_s == (0.5,) * 4  # the fifth is the end
    assert [load.streams for load in times.loads] == [1, 3]
    for load in times.loads:  # never faster than it was made; how much slower is the machine's affair
        assert 0.2 <= load.ttfa_s < 1.5
        assert 0.2 <= load.rtf < 1.5  # 0.1 s for half a second
    assert re.search(r"\| +3 \|", out)
    printed(capsys, "simulate", "--trace", "constant", *HOUR, "--service-times", str(path))


@pytest.mark.parametrize(
    ("service", "message"),
    [({"status": 503}, "answered 503"), ({"blocks": 1}, "one block"), ({"blocks": 0}, "without any audio")],
)
def test_a_service_that_cannot_be_measured_is_an_error(service: dict, message: str) -> None:
    with paced_service(first=0.0, pause=0.0, **service) as url, pytest.raises(SystemExit, match=message):
        main(["measure", "--url", url, "--streams", "1", "--rounds", "1"])


def test_an_absent_service_is_an_error() -> None:
    with pytest.raises(SystemExit, match="autoscale: error"):
        main(["measure", "--url", "http://127.0.0.1:9", "--streams", "1"])
