"""Streams hold, end honestly, and free what they use: against the real service and its real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from launch.server import Server
from tests.service.conftest import recording

SENTENCE = "The little boat went slowly down the river in the morning. "
LONG = {"input": SENTENCE * 24, "response_format": "pcm", "seed": 9}


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
    whole = httpx.post(server.url + "/v1/audio/speech", json=LONG, timeout=120).content
    with httpx.stream("POST", server.url + "/v1/audio/speech", json=LONG, timeout=120) as response:
        chunks = response.iter_raw()
        received = [next(chunks)]
        for _ in range(105):
            assert httpx.get(server.url + "/readyz").status_code == 200
        # Each needs the prompt encoder once (through depends()) and the engine once.
        bodies = [
            {"input": "Hi.", "ref_audio": recording(1.0, level=0.1 + index / 500), "stream": False, "seed": 0}
            for index in range(101)
        ]
        with ThreadPoolExecutor(4) as pool:
            answers = list(
                pool.map(lambda body: httpx.post(server.url + "/v1/audio/speech", json=body, timeout=120), bodies)
            )
        assert {answer.status_code for answer in answers} == {200}
        received += list(chunks)
    assert len(whole) > 24_000 * 2 * 60
    assert abs(len(b"".join(received)) - len(whole)) == 0


@pytest.mark.parametrize("after", ["first chunk", "request"])
def test_a_client_that_disconnects_frees_its_slot(server: Server, after: str) -> None:
    _until(lambda: _gauge(server.url, "cosyserve_engine_requests") == 0, 30)

    async def leave() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            if after == "request":
                with contextlib.suppress(httpx.TimeoutException):
                    await client.post(
                        server.url + "/v1/audio/speech", json={**LONG, "stream": False}, timeout=1.0
                    )
            else:
                async with client.stream("POST", server.url + "/v1/audio/speech", json=LONG) as response:
                    await anext(response.aiter_raw())

    asyncio.run(leave())
    assert _until(lambda: _gauge(server.url, "cosyserve_engine_requests") == 0, 5) < 2
    assert _gauge(server.url, "cosyserve_active_streams") == 0


def _engine_process(server: Server) -> psutil.Process:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children(recursive=True)
    (engine,) = [child for child in children if "speech_engine" in " ".join(child.cmdline())]
    return engine


def test_a_stream_whose_engine_dies_never_looks_finished() -> None:
    with Server() as server:
        server.wait_ready(timeout=120)
        for body, complete in ((LONG, False), ({**LONG, "stream_format": "sse"}, True)):
            received = b""
            with pytest.raises(httpx.RemoteProtocolError) if not complete else contextlib.nullcontext():
                with httpx.stream("POST", server.url + "/v1/audio/speech", json=body, timeout=60) as response:
                    for chunk in response.iter_raw():
                        if not received:
                            _engine_process(server).kill()
                        received += chunk
            assert b"speech.audio.done" not in received
            if complete:
                assert b'"speech.audio.error"' in received
                assert b'"engine_error"' in received
            else:
                answer = httpx.post(server.url + "/v1/audio/speech", json={"input": "Hello."}, timeout=30)
                assert answer.status_code in (500, 503)
                assert answer.json()["error"]["code"] in ("engine_unavailable", "engine_error", "loading")
                _until(server.is_ready, 60)  # a fresh engine takes over


def test_sigterm_lets_a_running_stream_finish_and_turns_readiness_off() -> None:
    with Server() as server:
        server.wait_ready(timeout=120)
        expected = httpx.post(server.url + "/v1/audio/speech", json=LONG, timeout=120).content
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
