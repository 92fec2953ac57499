"""The decode benchmark compares like with like: its baseline is the same model, and its figures are of what it ran."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.decode import EXACT, UPSTREAM, DecodeReport, Speed, measure_speed, precisions
from benchmarks.fidelity import Fidelity, embedded_texts, measure_fidelity
from benchmarks.upstream_lm import UpstreamLM, walk_sample
from models.config import SamplingConfig, load_config
from models.sampling import ras_sample
from tests.golden import golden
from tests.models.lm import load, prompt_speech, text_ids

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", [2, 3])
def test_the_baseline_is_the_same_model(version: int) -> None:
    lm, baseline = load(version), UpstreamLM(load_config(golden(version).dir))
    cache, inputs = lm.new_cache(), lm.build_input(text_ids(version), prompt_speech(version))
    torch.testing.assert_close(baseline.prefill(inputs), lm.extend(cache, cache.add(), inputs), atol=2e-5, rtol=2e-7)
    for token in range(0, 6000, 300):
        expected = lm.decode(cache, torch.tensor([token]))[0]
        torch.testing.assert_close(baseline.step(token), expected, atol=2e-5, rtol=2e-7)


def test_the_baseline_computes_the_text_head(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = UpstreamLM(load_config(golden(2).dir))
    baseline.prefill(load(2).build_input([1, 2, 3]))
    widths = []
    linear = torch.nn.functional.linear

    def spy(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        widths.append(len(weight))
        return linear(x, weight, bias)

    monkeypatch.setattr("torch.nn.functional.linear", spy)
    baseline.step(5)
    assert load(2).text_vocab in widths


def test_the_baseline_draws_the_golden_tokens() -> None:
    reference = golden(2)
    config = SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.1)
    logp, history, lengths, expected = (
        reference.array(f"ras.{name}") for name in ("logp", "history", "history_len", "token")
    )
    for i, token in enumerate(expected.tolist()):
        arguments = torch.tensor(logp[i]), history[i, : lengths[i]].tolist(), config
        generators = [torch.Generator().manual_seed(1000 + i) for _ in range(2)]
        assert walk_sample(*arguments, generators[0]) == token == ras_sample(*arguments, generators[1])


def test_every_way_is_measured_against_the_baseline() -> None:
    speeds = measure_speed(golden(3).dir, rounds=2, batches=(1, 3))
    assert {(speed.way, speed.batch) for speed in speeds} == {
        (UPSTREAM, 1),
        *((name, batch) for name in precisions() for batch in (1, 3)),
    }
    base = next(speed for speed in speeds if speed.way == UPSTREAM)
    assert base.ratio == 1
    for speed in speeds:
        assert speed.tokens_per_second == pytest.approx(speed.batch / speed.step)
        assert speed.ratio == pytest.approx(speed.tokens_per_second / base.tokens_per_second)


def test_float32_is_faithful_to_itself_and_bfloat16_almost() -> None:
    texts = [text_ids(2)[:10], text_ids(2)[:14]]
    precise, rounded = measure_fidelity(
        golden(2).dir, "tiny", texts, {"again": torch.float32, "bf16": torch.bfloat16}, steps=25
    )
    assert (precise.model, precise.precision, precise.tokens) == ("tiny", "again", 50)
    assert (precise.drift, precise.worst, precise.greedy, precise.drawn) == (0, 0, 1, 1)
    assert precise.divergence == pytest.approx(0, abs=1e-9)
    assert 0 < rounded.drift < rounded.worst < 1
    assert rounded.tokens == 50
    assert 0 < rounded.divergence < 0.1
    assert rounded.greedy > 0.5


def test_the_embedded_voice_is_asked_in_its_phonemes() -> None:
    texts = embedded_texts(3)
    assert len(texts) >= 3
    assert all(10 < len(text) < 200 for text in texts)


def test_the_report_has_a_row_for_each_way_and_a_cell_for_each_batch() -> None:
    speeds = (Speed(UPSTREAM, 1, 0.1, 10.0, 1.0), Speed(EXACT, 1, 0.05, 20.0, 2.0), Speed(EXACT, 8, 0.1, 80.0, 8.0))
    fidelity = Fidelity("voice", "int8", 100, 0.001, 0.06, 3e-5, 0.998, 0.996)
    text = DecodeReport(2, speeds, (fidelity,)).markdown()
    assert "2 threads" in text
    rows = re.findall(r"(?m)^\| .*$", text)
    assert rows[1:3] == ["| upstream | 10.0 (1.0x) |  |", "| fp32 | 20.0 (2.0x) | 80.0 (8.0x) |"]
    assert rows[-1] == "| voice | int8 | 100 | 0.0010 | 0.060 | 3.0e-05 | 99.8% | 99.6% |"
    assert {row.count("|") for row in rows[:3]} == {4}


def test_the_command_prints_both_tables() -> None:
    command = [sys.executable, "-m", "benchmarks.decode", "--model", str(golden(3).dir)]
    command += ["--threads", "1", "--rounds", "2", "--batches", "1,2", "--sentences", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in precisions():
        assert f"\n| {name} | " in done.stdout
    assert "| embedded voice | bf16 | " in done.stdout
    assert f"| {golden(3).dir.name} | bf16 | " in done.stdout
