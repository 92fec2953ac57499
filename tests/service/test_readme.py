"""The README's examples run as they stand, in order, in one folder, against the real service."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from launch.server import ROOT, Server, free_port

EXAMPLES = re.findall(r"^```(bash|python)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where the examples find a server, and where there is one."""
    grpc_port = free_port()
    voices = str(tmp_path_factory.mktemp("voices"))
    with Server(env={"GRPC_PORT": str(grpc_port), "COSYSERVE_VOICES": voices}) as running:
        running.wait_ready(timeout=120)
        yield {"localhost:3000": f"{running.host}:{running.port}", "localhost:3001": f"127.0.0.1:{grpc_port}"}


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_the_example_runs(index: int, addresses: dict[str, str], folder: Path) -> None:
    language, code = EXAMPLES[index]
    for told, real in addresses.items():
        code = code.replace(told, real)
    if "curl" in code and shutil.which("curl") is None:
        pytest.skip("this example needs curl")
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    for path in folder.glob("*.wav"):
        samples, _ = soundfile.read(path)
        assert len(samples) > 12_000


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
