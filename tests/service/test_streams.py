"""Streams hold, end honestly, and free what they use: against the real service and its real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import httpx
import psutil
import pytest

from launch.server import Server
from models.config import EMBEDDED
from tests.service.conftest import recording

SENTENCE = "The little boat went slowly down the river in the morning. "
LONG = {"input": SENTENCE * 16, "response_format": "pcm", "seed": 9}


def _post(server: Server, body: dict) -> httpx.Response:
    return httpx.post(server.url + "/v1/audio/speech", json=body, timeout=120)


def _cloning(index: int) -> dict:
    """A request with a reference that no other one has."""
    return {"input": "Hi.", "ref_audio": recording(1.0, level=0.1 + index / 500), "stream": False, "seed": 0}


def _gauge(url: str, name: str) -> float:
    text = httpx.get(url + "/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


def _until(condition: Callable[[], bool], timeout: float) -> float:
    """Seconds until `condition` holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, "it never came true"
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_long_stream_outlives_100_other_calls_and_105_probes(server: Server) -> None:
    whole = _post(server, LONG).content
    with httpx.stream("POST", server.url + "/v1/audio/speech", json=LONG, timeout=120) as response:
        chunks = response.iter_raw()
        received = [next(chunks)]
        for _ in range(105):
            assert httpx.get(server.url + "/readyz").status_code == 200
        # Each is encoded (a call through depends()) and reaches the engine, which refuses it without work; the last
        # ones are spoken.
        refused = [{**_cloning(index), "instructions": "Whisper."} for index in range(101)]
        spoken = [_cloning(index) for index in range(101, 105)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda body: _post(server, body).status_code, refused + spoken))
        assert answers == [400] * 101 + [200] * 4
        received += list(chunks)
    assert len(whole) > 24_000 * 2 * 45
    assert b"".join(received) == whole


@pytest.mark.parametrize("after", ["first chunk", "request"])
def test_a_client_that_disconnects_frees_its_slot(server: Server, after: str) -> None:
    _until(lambda: _gauge(server.url, "cosyserve_engine_requests") == 0, 30)

    endless = {**LONG, "input": SENTENCE * 80}  # minutes: it does not end by itself meanwhile

    async def leave() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            if after == "request":
                with contextlib.suppress(httpx.TimeoutException):
                    await client.post(server.url + "/v1/audio/speech", json={**endless, "stream": False}, timeout=1.0)
            else:
                async with client.stream("POST", server.url + "/v1/audio/speech", json=endless) as response:
                    await anext(response.aiter_raw())

    asyncio.run(leave())
    assert _until(lambda: _gauge(server.url, "cosyserve_engine_requests") == 0, 30) < 10
    assert _gauge(server.url, "cosyserve_active_streams") == 0


def _runner_process(server: Server, name: str = "speech_engine") -> psutil.Process:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children(recursive=True)
    (runner,) = [child for child in children if name in " ".join(child.cmdline())]
    return runner


def test_a_stream_whose_engine_dies_never_looks_finished() -> None:
    with Server() as server:
        server.wait_ready(timeout=120)
        answer = _killed_while_speaking(server, LONG)
        assert isinstance(answer, httpx.RemoteProtocolError)  # the chunked body has no end
        following = _post(server, {"input": "Hello."})
        assert following.status_code in (500, 503)
        assert following.json()["error"]["code"] in ("engine_unavailable", "engine_error", "loading")
        _until(server.is_ready, 60)  # a fresh engine takes over
        assert _gauge(server.url, "cosyserve_engine_requests") == 0
        assert _gauge(server.url, "cosyserve_engine_live_utterances") == 0
        answer = _killed_while_speaking(server, {**LONG, "stream_format": "sse"})
        assert isinstance(answer, bytes)
        assert b"speech.audio.done" not in answer
        assert b'"speech.audio.error"' in answer
        assert b'"engine_error"' in answer


def test_a_prompt_encoder_that_dies_is_an_error_to_try_again(tmp_path: Path) -> None:
    model = tmp_path / "\u58f0\u97f3"  # a folder name that no HTTP header can carry as it is
    shutil.copytree(EMBEDDED, model)
    with Server(env={"MODEL_DIR": str(model)}) as server:
        server.wait_ready(timeout=120)
        answer = _post(server, {"input": "Hi."})
        assert answer.status_code == 200
        assert unquote(answer.headers["x-model-id"]) == model.name
        encoder = _runner_process(server, "prompt_encoder")
        # On the kept connection; a new one would wait in the socket's backlog for the next process, and be served.
        assert _post(server, _cloning(1)).status_code == 200
        encoder.suspend()  # so that the call is under way when the process dies
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(_post, server, _cloning(0))
            time.sleep(1)
            encoder.kill()
            answer = pending.result()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_unavailable"
        assert answer.headers["retry-after"]


def _killed_while_speaking(server: Server, body: dict) -> bytes | Exception:
    received = b""
    try:
        with httpx.stream("POST", server.url + "/v1/audio/speech", json=body, timeout=60) as response:
            for chunk in response.iter_raw():
                if not received:
                    _runner_process(server).kill()
                received += chunk
    except httpx.HTTPError as error:
        return error
    return received


def test_sigterm_lets_a_running_stream_finish_and_turns_readiness_off() -> None:
    with Server() as server:
        server.wait_ready(timeout=120)
        expected = _post(server, LONG).content
        received = bytearray()
        started = threading.Event()

        def listen() -> None:
            with httpx.stream("POST", server.url + "/v1/audio/speech", json=LONG, timeout=120) as response:
                for chunk in response.iter_raw():
                    received.extend(chunk)
                    started.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert started.wait(30)
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGTERM)
        _until(lambda: not server.is_ready(), 5)
        assert listener.is_alive(), "the stream was over before it could be drained"
        listener.join(60)
        assert bytes(received) == expected
        assert server.process.wait(30) == 0


def test_each_runner_has_a_process_of_its_own(server: Server) -> None:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children(recursive=True)
    commands = [" ".join(child.cmdline()) for child in children]
    for name in ("speech_engine", "prompt_encoder"):
        assert sum(name in command for command in commands) == 1
