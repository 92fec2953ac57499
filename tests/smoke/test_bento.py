"""The built bento, away from the repository, serves what the demo asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from launch.demo import speak
from launch.server import ROOT, Server
from launch.terminal import ProgressLine

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def bento(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a freshly built bento."""
    home = tmp_path_factory.mktemp("bentoml")
    env = {**os.environ, "BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "true"}
    command = [sys.executable, "-m", "bentoml", "build", "--output", "tag", str(ROOT)]
    result = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    tag = result.stdout.strip().removeprefix("__tag__:")
    yield home / "bentos" / tag.replace(":", "/")


def test_the_bento_speaks(bento: Path, tmp_path: Path) -> None:
    with Server(target=str(bento), cwd=tmp_path) as server:
        server.wait_ready(timeout=120)
        report = speak(server.url, "Good morning.", None, tmp_path / "demo.wav", ProgressLine())
        assert "time to first audio" in report
        assert "CosyServe" in httpx.get(f"{server.url}/ui/").text
        assert openai.OpenAI(base_url=f"{server.url}/v1", api_key="none").models.list().data[0].id == "embedded"
    assert (tmp_path / "demo.wav").stat().st_size > 24_000


def test_the_bento_holds_what_it_runs_and_nothing_else(bento: Path) -> None:
    names = {path.relative_to(bento / "src").parts[0] for path in (bento / "src").rglob("*") if path.is_file()}
    assert names <= {
        "service.py",
        "api",
        "audio",
        "models",
        "runners",
        "text",
        "web",
        "README.md",
        "LICENSE",
        "bentofile.yaml",
        "requirements-cpu.lock",
        "requirements-gpu.lock",
    }
    assert (bento / "src" / "models" / "embedded" / "llm.pt").is_file()
    lock = (bento / "env" / "python" / "requirements.txt").read_text()
    assert "bentoml==" in lock
    assert "torch==" in lock
