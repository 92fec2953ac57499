"""The script for a machine with a GPU, rehearsed on the CPU: it measures everything, and a failure ends one part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.measure.device_checks import Check, Checks
from tests.golden import golden


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COSYSERVE_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_rehearsal_checks_and_measures_everything_but_a_part_that_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(self: Checks) -> Check:
        raise MemoryError("injected")

    monkeypatch.setattr(Checks, "rounded", breaks)
    folder = str(golden(3).dir)
    assert gpu.main([folder, "--device", "cpu", "--quick", "--out", str(tmp_path)]) == 1
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert {name: check["error"] <= check["tolerance"] for name, check in report["checks"].items()} == {
        "decode, float32, to the CPU": True,
        "flow, float32, to the CPU": True,
        "audio, float32, to the CPU": True,
        "engine with overlap, to without": True,
    }
    assert [one["part"] for one in report["broken"]] == ["flow, usual precision, to float32"]
    assert [(one["mode"], one["what"]) for one in report["targets"]] == [
        ("overlap", what)
        for what in ("TTFA P50, 1 stream (s)", "TTFA P95, 2 streams (s)", "continuity, 2 streams", "audio-s/s, 2 whole")
    ]
    assert all(one["figure"] > 0 or one["what"].startswith("continuity") for one in report["targets"])
    table = capsys.readouterr().out
    assert "BROKEN flow, usual precision, to float32: MemoryError: injected" in table
    assert "CUDA graphs and streams were not tried" in table


def test_a_difference_that_is_too_large_is_no_pass() -> None:
    assert Check(0.5, 0.5).passed
    assert not Check(0.6, 0.5).passed
    assert not Check(float("nan"), 0.5).passed


def test_no_part_is_begun_when_time_has_run_out() -> None:
    report = gpu.run(golden(3).dir, torch.device("cpu"), gpu.QUICK, seconds=-1.0)
    assert not report.passed
    assert {one.error for one in report.broken} == {"no time was left for it"}
    assert not report.checks
    assert not report.targets


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_command_says_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["anywhere"])
    assert "--device cpu --quick rehearses" in capsys.readouterr().err
