"""The image, built for real: what is in it, and that it speaks, hardened, and ends gently."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from launch.image import build_bento, containerize
from tests.image.engine import TOOLS, Container, configure, make_base, podman
from tests.wer import transcribe, word_errors

pytestmark = [
    pytest.mark.image,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, TOOLS)), reason=f"needs root and {', '.join(TOOLS)}"
    ),
]
# `VARIANT=gpu make image-test` tests the other one; without a GPU it computes on the CPU.
VARIANT = os.environ.get("VARIANT") or "cpu"
# Over the base image. torch's CPU build is half of the first, CUDA's libraries nine tenths of the second.
MAX_BYTES = {"cpu": 1_300_000_000, "gpu": 8_000_000_000}[VARIANT]
LONG = {"input": "The little boat went slowly down the river in the morning. " * 8, "seed": 9, "response_format": "pcm"}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return configure(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def image(env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = make_base(tmp_path_factory.mktemp("base"), env)
    options = ["network=host"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        if VARIANT == "gpu":  # a folder of wheels is where the CPU build of torch is
            patch.delenv("PIP_FIND_LINKS", raising=False)
        wheels = os.environ.get("PIP_FIND_LINKS", "")
        if Path(wheels).is_absolute():
            options.append(f"volume={wheels}:{wheels}:ro")
        yield containerize(build_bento(), VARIANT, "podman", arguments={"BASE_IMAGE": base}, options=options)


@pytest.fixture(scope="module")
def container(image: str, env: dict[str, str]) -> Iterator[Container]:
    container = Container(image, env)
    try:
        print(f"ready {container.wait_ready(180):.1f} s after podman run")
        yield container
    finally:
        container.remove()


def test_the_image_is_small_and_says_what_it_is(image: str, env: dict[str, str]) -> None:
    (about,) = json.loads(podman(["image", "inspect", image], env))
    (base,) = json.loads(podman(["image", "inspect", "localhost/cosyserve-test-python"], env))
    added = about["Size"] - base["Size"]
    print(f"image {about['Size'] / 1e6:.0f} MB, of which {added / 1e6:.0f} MB over its base")
    assert added < MAX_BYTES
    config = about["Config"]
    assert config["User"] == "1034:1034"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"].endswith(f"-{VARIANT}")
    assert labels["org.opencontainers.image.revision"]
    names = [entry.split("=", 1)[0] for entry in config["Env"]]
    assert not [name for name in names if "TOKEN" in name or "SECRET" in name or "PASSWORD" in name]


def test_nothing_that_builds_or_installs_is_left_inside(container: Container) -> None:
    assert container.shell("command -v gcc cc make git curl wget uv") == ""
    assert "No module named" in container.shell("python -m pip --version 2>&1")
    assert "No module named" in container.shell("/usr/bin/python3 -m pip --version 2>&1")
    secrets = "-name '*.key' -o -name .netrc -o -name pip.conf -o -name .git"
    assert container.shell(f"find / -xdev -path '*/site-packages' -prune -o \\( {secrets} \\) -print") == ""


def test_the_bill_of_materials_is_the_lock(container: Container) -> None:
    bill = json.loads(container.shell("cat /usr/share/doc/cosyserve/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    listed = {re.sub("[-_.]+", "-", part["name"]).lower(): part["version"] for part in bill["components"]}
    lock = Path(f"requirements-{VARIANT}.lock").read_text().split()
    for name, version in (line.split("==") for line in lock):
        assert listed[name].split("+")[0] == version
    cuda = [name for name in listed if name.startswith(("nvidia-cu", "triton"))]
    assert bool(cuda) == (VARIANT == "gpu")


def test_the_packages_are_those_of_the_variant(container: Container) -> None:
    program = "import onnxruntime, torch; print(torch.version.cuda, *onnxruntime.get_available_providers())"
    cuda, *providers = container.shell(f"python -c '{program}'").split()
    assert (cuda != "None") == ("CUDAExecutionProvider" in providers) == (VARIANT == "gpu")


def test_it_runs_without_rights(container: Container) -> None:
    assert container.shell("id -u") == "1034"
    assert container.shell("grep CapEff /proc/1/status").split()[-1].strip("0") == ""
    assert "Read-only file system" in container.shell("touch /home/bentoml/bento/x 2>&1; touch /app/x 2>&1")


def test_it_speaks(container: Container) -> None:
    text = "Good morning, how are you today?"
    body = {"input": text, "response_format": "pcm", "seed": 1, "stream": False}
    answer = httpx.post(f"{container.url}/v1/audio/speech", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    heard = transcribe(np.frombuffer(answer.content, "<i2").astype(np.float32) / 32768, 24_000)
    assert word_errors(text, heard).errors <= 1, heard


def test_grpc_and_http_share_a_pod_whose_port_is_the_one_of_grpc(image: str, env: dict[str, str]) -> None:
    """As kserve/overlays/grpc does it: Knative sets PORT to the port that it routes to."""
    environment = {"PORT": "8081", "GRPC_PORT": "8081"}
    container = Container(image, env, ports=(8080, 8081), environment=environment, arguments=["--port", "8080"])
    try:
        container.wait_ready(180)
        ask = f"InferenceServerClient({container.addresses[8081]!r}).is_model_ready('embedded')"
        code = f"from tritonclient.grpc import InferenceServerClient\nassert {ask}"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    finally:
        container.remove()


def test_sigterm_lets_a_stream_finish(image: str, env: dict[str, str]) -> None:
    container = Container(image, env)
    try:
        container.wait_ready(180)
        expected = httpx.post(f"{container.url}/v1/audio/speech", json=LONG, timeout=120).content
        received, started = bytearray(), threading.Event()

        def listen() -> None:
            with httpx.stream("POST", f"{container.url}/v1/audio/speech", json=LONG, timeout=120) as response:
                for chunk in response.iter_raw():
                    received.extend(chunk)
                    started.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert started.wait(30)
        container.signal("TERM")
        listener.join(120)
        assert bytes(received) == expected
        assert container.wait(30) == 0
    finally:
        container.remove()
