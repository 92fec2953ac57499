"""The real service on the embedded voice, started once for all tests of this folder."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest
import soundfile

from launch.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(env={"COSYSERVE_VOICES": str(tmp_path_factory.mktemp("voices"))}) as running:
        running.wait_ready(timeout=120)
        yield running


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as sdk:
        yield sdk


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as session:
        yield session


def recording(seconds: float = 3.0, rate: int = 24_000, level: float = 0.3) -> str:
    """A data URL of something that is no silence: a hummed tone with overtones that moves."""
    time = np.arange(int(seconds * rate)) / rate
    phase = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 1.3 * time)) / rate
    wave = sum(np.sin(phase * k) / k for k in range(1, 8)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
    file = io.BytesIO()
    soundfile.write(file, level * wave / np.abs(wave).max() if level else wave * 0, rate, format="WAV")
    return "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()
