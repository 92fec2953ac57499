"""The report's arithmetic, and the whole command on a tiny model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench import EMBEDDED_VOICE, main, measure, publish
from benchmarks.decode import DecodeReport, Speed
from benchmarks.loading.client import Arrival, Speech
from benchmarks.loading.figures import Figures
from benchmarks.loading.levels import Closed, Level
from benchmarks.measure.claims import Claim, claims_of, decode_claims
from benchmarks.measure.comparison import Comparison, Ours, UpstreamRequest, UpstreamServing
from benchmarks.measure.machine import Machine
from benchmarks.measure.model_report import Effort, ModelReport
from benchmarks.measure.report import Bench
from benchmarks.measure.stages import Stage
from benchmarks.measure.streaming import Compute, Growth, HopCost, StreamCompute
from tests.golden import golden

MACHINE = Machine("a processor", 2, 24.0, 2, 0.5, "2.0", "3.11")


def level(*first_audio: float, each: float, seconds: float) -> Figures:
    """Streams that begin at 0 and end after `seconds`, each with `each` seconds of audio."""
    speeches = [Speech(100.0, 100.0 + seconds, (Arrival(first, each),)) for first in first_audio]
    return Figures.of(Level(Closed(len(speeches)), speeches, began=100.0))


def report() -> ModelReport:
    upstream = UpstreamServing((UpstreamRequest(3.0, 10.0, 4.0), UpstreamRequest(4.0, 12.0, 4.0)))
    ours = Ours("float32", level(1.0, 2.0, 3.0, 4.0, each=4.0, seconds=8.0), (Stage("flow", 4, 6.0, 9.0, 2.5, 4),))
    compute = StreamCompute("float32", 10, Compute(8.0, 2.0), Compute(9.0, 2.5), Compute(24.0, 2.0))
    hops = (HopCost(2, 1.0, 0.010, 0.010), HopCost(20, 60.0, 0.012, 0.008))
    growths = (Growth("float32", None, 7.5, ()), Growth("float32", 20, 2.5, hops))
    return ModelReport("full-2", Comparison(4, 100, upstream, (ours,)), compute, growths, (), 5.0)


def claim(what: str) -> Claim:
    (found,) = [claim for claim in claims_of(report()) if what in claim.what]
    return found


def test_upstreams_queue_is_the_sum_of_its_requests() -> None:
    """The faster takes 10 s, 3 s of it to the first audio: 3, 13, 23, 33 s."""
    waits = report().comparison.upstream.ttfa(4)
    assert (waits.p50, waits.p95) == (13.0, 33.0)
    assert claim("TTFA P50").ratio == pytest.approx(2 / 13)
    assert claim("TTFA P95").ratio == pytest.approx(4 / 33)
    assert claim("TTFA P95").met


def test_audio_per_second_is_ours_to_upstreams() -> None:
    """16 s of audio in 8 s, upstream's 4 s of audio in 10 s."""
    throughput = claim("audio-s/s")
    assert throughput.ratio == pytest.approx(2.0 / 0.4)
    assert throughput.met
    assert not replace(throughput, ratio=3.99).met


def test_streaming_costs_are_flow_and_vocoder_together() -> None:
    assert claim("10 s streamed").ratio == pytest.approx(11.5 / 10)
    assert claim("10 s streamed").met
    late = claim("hop 20 to hop 2 per token, 20 s window (default)")
    assert late.ratio == pytest.approx(1.2)
    assert not late.met


def test_the_fastest_way_of_decoding_is_the_claim() -> None:
    speeds = (
        Speed("upstream", 1, 0.1, 10.0, 1.0),
        Speed("bf16", 1, 0.05, 20.0, 2.0),
        Speed("int8", 1, 0.04, 25.0, 2.5),
        Speed("bf16", 8, 0.16, 50.0, 5.0),
    )
    one, eight = decode_claims(DecodeReport(2, speeds, ()))
    assert (one.precision, one.ratio, one.met) == ("int8", 2.5, True)
    assert (eight.precision, eight.ratio, eight.met) == ("bf16", 5.0, False)


def test_json_and_markdown_say_the_same(tmp_path: Path) -> None:
    bench = Bench(MACHINE, (report(),))
    bench.write(tmp_path / "bench.json")
    written = json.loads((tmp_path / "bench.json").read_text())
    assert [entry["ratio"] for entry in written["claims"]] == [claim.ratio for claim in bench.claims]
    assert written["models"][0]["compute"]["upstream"]["flow"] == 24.0
    text = bench.markdown()
    for expected in (
        "a processor, 2 cores",
        "24.00 (3.00x)",
        "7.50 GB: not measured",
        "12.0 (8.0)",
        "13.00/33.00",
        "1500.0",
    ):
        assert expected in text
    assert text.count("| yes |") == sum(claim.met for claim in bench.claims)


def test_the_whole_run_on_a_tiny_model(tmp_path: Path) -> None:
    effort = Effort(1, streams=2, tokens=20, seconds=2, hops=(2, 3), clients=(1, 2), requests=1, texts=1)
    bench = measure([EMBEDDED_VOICE], {EMBEDDED_VOICE: golden(3).dir}, effort, effort)
    text = publish(bench, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "bench.json",
        "bench.md",
        "load-embedded.png",
        "streaming.png",
    }
    assert len(bench.claims) == 3 + 1 + 2
    assert all(claim.ratio > 0 for claim in bench.claims)
    (model,) = bench.models
    assert [load.figures.load for load in model.loads] == ["concurrency", "concurrency", "rate", "rate"]
    assert text == (tmp_path / "bench.md").read_text()


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--folder", "full-9=/nowhere"])
    assert "no part full-9" in capsys.readouterr().err
