"""The service with a gRPC port, and what the tests of its inference protocol ask of it besides."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from audio.encode import to_pcm16
from launch.server import Server, free_port
from tests.service.conftest import recording

TEXT, SEED = "Good morning, how are you?", 4
LONG = "The little boat went slowly down the river in the morning. " * 12


class InferenceServer(Server):
    """Under the name that KServe gives it."""

    def __init__(self) -> None:
        self.grpc_port = free_port()
        self.grpc_address = f"127.0.0.1:{self.grpc_port}"
        super().__init__(env={"GRPC_PORT": str(self.grpc_port), "INFERENCE_SERVICE_NAME": "narrator"})

    def __enter__(self) -> InferenceServer:
        self.start()
        return self


def speech(server: Server, **body: Any) -> np.ndarray:
    """What the speech API gives, `[L]` int16."""
    body = {"input": TEXT, "seed": SEED, "stream": False, "response_format": "pcm", **body}
    answer = httpx.post(server.url + "/v1/audio/speech", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, np.int16)


@pytest.fixture(scope="module")
def service() -> Iterator[InferenceServer]:
    with InferenceServer() as running:
        running.wait_ready(timeout=120)
        yield running


@pytest.fixture(scope="module")
def spoken(service: InferenceServer) -> np.ndarray:
    """What the speech API gives for TEXT and SEED."""
    return speech(service)


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    """`[L]` float32 at 16 kHz."""
    file = base64.b64decode(recording(2.0, rate=16_000).partition(",")[2])
    return soundfile.read(io.BytesIO(file), dtype="float32")[0]


def assert_same(samples: np.ndarray, expected: np.ndarray) -> None:
    """`samples` as float32, int16 or the bytes of int16 are `expected`, and speech of over a second."""
    if samples.dtype == np.float32:
        samples = to_pcm16(samples.reshape(-1))
    elif samples.dtype == np.uint8:
        samples = samples.view(np.int16)
    np.testing.assert_array_equal(samples, expected)
    assert len(samples) > 24_000


def gauge(service: Server, name: str) -> float:
    """Summed over the processes."""
    lines = httpx.get(service.url + "/metrics").text.splitlines()
    name, _, labels = name.partition("{")
    found = [line for line in lines if line.startswith((name + "{", name + " ")) and labels.rstrip("}") in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def until(condition: Callable[[], bool], timeout: float) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, "it never came true"
        time.sleep(0.02)
