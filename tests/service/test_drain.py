"""After SIGTERM no request that never finishes arriving keeps the service from its end: the real service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
from websockets.asyncio.client import connect

from api.oip.messages import SERVICE
from tests.api.live_server import Session
from tests.service.oip_server import LONG, InferenceServer


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


def test_sigterm_is_not_held_up_by_what_does_not_arrive() -> None:
    with InferenceServer() as server:
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
                channel.unary_unary(f"/{SERVICE}/ServerLive")(
                    b"", timeout=30
                )  # after it: the server has the silent one
                speaking = threading.Event()
                session = pool.submit(asyncio.run, hears_the_end(server, speaking))
                assert speaking.wait(20)
                os.kill(server.process.pid, signal.SIGTERM)
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
