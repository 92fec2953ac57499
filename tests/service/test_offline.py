"""With the network blocked and weights that it cannot write to, the service starts and speaks.

A guard refuses and records every attempt to leave this machine. Where this user may make them, a network namespace
without a way out and a read-only mount are around it; where not, a skipped test says so.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from launch.server import ROOT
from models.config import EMBEDDED
from tests.golden import golden
from tests.service.conftest import recording

HERE = Path(__file__).parent / "offline"
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'

PROBE = """
import errno, pathlib, socket, sys
for attempt in (lambda: socket.create_connection(("192.0.2.1", 80), timeout=5), pathlib.Path(sys.argv[1], "new").touch):
    try:
        attempt()
    except OSError as error:
        print(errno.errorcode.get(error.errno, error))
"""


def isolation(model: Path) -> list[str]:
    """A command prefix: no network but loopback, `model` mounted read-only; [] where this user may not do that."""
    for user in ([], ["--user", "--map-root-user"]):
        prefix = ["unshare", *user, "--net", "--mount", "sh", "-c", READ_ONLY, str(model)]
        try:
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return prefix
        except FileNotFoundError:
            break
    return []


def environment(attempts: Path, **changes: str) -> dict[str, str]:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)]),
        "COSYSERVE_TEST_ATTEMPTS": str(attempts),
    }
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        env.pop(name, None)
    return {**env, **changes}


@pytest.fixture(params=["embedded", "genuine layout"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A model folder that nobody may write to: as files, and for root as a mount."""
    root = tmp_path / "models"
    shutil.copytree(EMBEDDED if request.param == "embedded" else golden(3).dir, root)
    everything = [root, *root.rglob("*")]
    for path in everything:
        path.chmod(path.stat().st_mode & ~0o222)
    yield root
    for path in everything:
        path.chmod(path.stat().st_mode | 0o200)


def test_it_speaks_without_network_from_a_folder_it_cannot_write_to(model: Path, tmp_path: Path) -> None:
    wav, attempts = tmp_path / "speech.wav", tmp_path / "attempts"
    body: dict[str, object] = {"input": "Good morning.", "stream": False}
    if (model / "cosyvoice3.yaml").is_file():
        body |= {"input": "2024年5月1日，你好。", "voice": "inline", "ref_audio": recording()}
    before = {path: path.stat().st_mtime_ns for path in (model, *model.rglob("*"))}
    prefix = isolation(model)

    request = tmp_path / "request.json"
    request.write_text(json.dumps(body))
    own_network = ["--own-network"] if prefix else []
    done = subprocess.run(
        [*prefix, sys.executable, str(HERE / "speak.py"), str(request), str(wav), *own_network],
        cwd=ROOT,
        env=environment(attempts, MODEL_DIR=str(model)),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    samples, rate = soundfile.read(io.BytesIO(wav.read_bytes()))
    assert rate == 24_000
    assert len(samples) > 0.2 * rate
    assert not attempts.exists(), f"it tried to reach {attempts.read_text().split()}"
    assert {path: path.stat().st_mtime_ns for path in (model, *model.rglob("*"))} == before


def test_there_the_network_ends_and_the_weights_are_mounted_read_only(tmp_path: Path) -> None:
    prefix = isolation(tmp_path)
    if not prefix:
        pytest.skip("this user may not unshare: no network namespace, no read-only mount, the guard alone blocks")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["ENETUNREACH", "EROFS"], done.stdout + done.stderr


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)",
        "import urllib.request; urllib.request.urlopen('http://hub.example/')",
        "import asyncio; asyncio.run(asyncio.open_connection('192.0.2.1', 80))",
    ],
)
def test_the_guard_sees_who_tries(attempt: str, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"
    done = subprocess.run(
        [sys.executable, "-c", attempt], env=environment(attempts), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the network is blocked" in done.stderr
    assert attempts.read_text().split() in (["192.0.2.1"], ["hub.example"])
