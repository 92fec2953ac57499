"""The load generator against the real service: it needs no option but the URL to count what is spoken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.load import main
from launch.server import Server


def test_the_service_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, path = tmp_path / "texts.txt", tmp_path / "load.json"
    texts.write_text("Good morning.\n")
    with Server(env={"COSYSERVE_MAX_TTFA": "none"}) as server:  # who is let in is not what is measured here
        server.wait_ready(timeout=120)
        for form in ("pcm", "wav"):
            options = ["--format", form, "--texts", str(texts), "--extra", '{"seed": 1}', "--json", str(path)]
            main([server.url, "--concurrency", "2", "--requests", "2", "--warm-up", "0", *options])
            (level,) = json.loads(path.read_text())["levels"]
            assert (level["ok"], level["failures"]) == (2, [])
            assert 0 < level["ttfa_s"]["p50"] <= level["rtf"]["max"] * level["audio_s"]["max"]
            assert 0.5 < level["audio_s"]["mean"] < 3
            assert "ASSUMED" not in capsys.readouterr().out
