"""What cannot start says so in a sentence that tells what to do; what was started is stopped."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from launch import demo
from launch.server import LaunchError, Server, check
from models.config import EMBEDDED


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"Port {port} .* choose another one with PORT="):
            check("127.0.0.1", port)


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10 * 2**20))
    with pytest.raises(LaunchError, match=r"Only 10 MB are free .* free at least"):
        check("127.0.0.1", 0)


@pytest.mark.parametrize("folder", ["/nowhere", "/tmp"])
def test_a_folder_that_is_no_model_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_DIR", folder)
    with pytest.raises(LaunchError, match=folder):
        check("127.0.0.1", 0)


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v2.onnx"])
def test_a_missing_model_file_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EMBEDDED, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    monkeypatch.setenv("MODEL_DIR", str(tmp_path / "model"))
    with pytest.raises(LaunchError, match=name):
        check("127.0.0.1", 0)


def test_a_damaged_checkpoint_stops_the_start_with_the_engines_own_sentence(tmp_path: Path) -> None:
    shutil.copytree(EMBEDDED, tmp_path / "model")
    (tmp_path / "model" / "flow.pt").write_bytes(b"not a checkpoint")
    with Server(env={"MODEL_DIR": str(tmp_path / "model")}) as broken, pytest.raises(LaunchError, match=r"flow\.pt"):
        broken.wait_ready(timeout=60)


def test_stopping_leaves_no_process_behind() -> None:
    with Server() as running:
        running.wait_ready(timeout=120)
        assert running.process is not None
        processes = psutil.Process(running.process.pid).children(recursive=True)
        assert len(processes) >= 3
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert not running._scratch.exists()


def test_the_demo_speaks_and_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setenv("TEXT", "Good evening.")
    assert demo.main() == 0
    report = capsys.readouterr().out
    for line in ("text", "time to first audio", "duration", "real-time factor", "out/demo.wav"):
        assert line in report
    assert (tmp_path / "out" / "demo.wav").stat().st_size > 24_000


def test_the_demo_names_the_voices_it_could_have_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICE", "nobody")
    assert demo.main() == 1
    assert "cosy" in capsys.readouterr().err


def test_a_wait_that_fails_stops_what_was_started() -> None:
    with pytest.raises(LaunchError, match="not ready after"), Server() as slow:
        slow.wait_ready(timeout=0.0)
    assert slow.process is None
