"""When the real service is there for gRPC; and after SIGTERM no request that never arrives keeps it from its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest
from websockets.asyncio.client import connect

from api.oip.messages import SERVICE, message
from tests.api.live_server import Session
from tests.service.oip_server import LONG, InferenceServer
from tests.service.test_faults import ENGINE, process, until


async def hears_the_end(server: InferenceServer, speaking: threading.Event) -> None:
    """A session that speaks when the drain begins: its sentence is whole, and nothing else is taken meanwhile."""
    async with connect(server.url.replace("http", "ws", 1) + "/v1/audio/speech/stream") as socket:
        session = Session(socket)
        await session.say("session.config", format="pcm")
        await session.say("input.text", text=LONG[:240].replace(".", ",") + ". Another sentence. ")
        await session.audio_has_begun()
        speaking.set()
        async with httpx.AsyncClient(base_url=server.url) as http:
            while (await http.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.02)
            refused = await http.post("/v1/audio/speech", json={"input": "Hello."})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        error = await session.until("error")
        assert (error["code"], error["fatal"]) == ("draining", True)
        assert await session.until_closed() == 1012
        assert [sentence.done["finish_reason"] for sentence in session.sentences] == ["stop"]


@pytest.fixture(scope="module")
def server() -> Iterator[InferenceServer]:
    """Begun, perhaps not ready yet."""
    with InferenceServer() as running:
        yield running


def listens(server: InferenceServer) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.grpc_port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def infer(channel: grpc.Channel, **options: Any) -> grpc.Future:
    asked = message("ModelInferRequest")(model_name="narrator")
    asked.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"Good morning.")
    return channel.unary_unary(f"/{SERVICE}/ModelInfer").future(asked.SerializeToString(), timeout=120, **options)


def calls_until_one_is_answered(server: InferenceServer) -> int:
    """One after the other, each on a connection of its own: those before found nobody there. Their number."""
    failed = 0
    while True:
        with grpc.insecure_channel(server.grpc_address) as channel:
            problem = infer(channel).exception(timeout=60)
            if problem is None:
                return failed
            assert problem.code() is grpc.StatusCode.UNAVAILABLE
            assert "Connection refused" in problem.details()
        failed += 1
        time.sleep(0.05)


def test_a_server_that_is_not_ready_is_not_there_for_grpc(server: InferenceServer) -> None:
    """While it starts, and from the end of its engine until there is another one."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        patient = infer(channel, wait_for_ready=True)
        assert calls_until_one_is_answered(server) > 5
        assert patient.exception(timeout=60) is None
        server.wait_ready(timeout=10)
        assert listens(server)
        process(server, ENGINE).kill()
        assert until(lambda: not listens(server), 5) < 1
        assert not server.is_ready()
        patient = infer(channel, wait_for_ready=True)
        assert calls_until_one_is_answered(server) > 5
        assert patient.exception(timeout=60) is None
        server.wait_ready(timeout=10)


def test_sigterm_is_not_held_up_by_what_does_not_arrive(server: InferenceServer) -> None:
    server.wait_ready(timeout=120)
    assert server.process is not None
    with (
        socket.create_connection((server.host, server.port)) as half,
        grpc.insecure_channel(server.grpc_address) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        half.sendall(b"POST /v2/models/narrator/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        silence = threading.Event()
        try:
            silent = channel.stream_unary(f"/{SERVICE}/ModelInfer").future(iter(silence.wait, True), timeout=60)
            channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=30)  # after it: the server has the silent one
            speaking = threading.Event()
            session = pool.submit(asyncio.run, hears_the_end(server, speaking))
            assert speaking.wait(20)
            os.kill(server.process.pid, signal.SIGTERM)
            until(lambda: not listens(server), 5)
            assert not session.done()
            half.settimeout(20)
            answer = half.makefile("rb").read()
            error = silent.exception(timeout=20)
            session.result(30)
        finally:
            silence.set()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'{"error":"draining: ' in answer
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details().startswith("draining: ")
        assert server.process.wait(20) == 0
