"""Clients that read slowly or not at all hold little memory and, in the end, nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from prometheus_client import REGISTRY

from api import engine_stream
from api.app import create_app
from tests.api.live_server import Endless, comes_true

OUTCOMES = "cosyserve_requests_total"


@asynccontextmanager
async def _port_of(backend: Endless) -> AsyncGenerator[int, None]:
    server = uvicorn.Server(uvicorn.Config(create_app(backend), port=0, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def _ask(port: int, body: dict) -> socket.socket:
    """A client that has asked and has read nothing."""
    client = socket.socket()
    await asyncio.to_thread(client.connect, ("127.0.0.1", port))
    content = json.dumps({"input": "Hello.", "response_format": "pcm", **body}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
    client.sendall(head.encode() + content)
    return client


def _stalled() -> float:
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == OUTCOMES and sample.labels["outcome"] == "client_stalled"
    )


@pytest.mark.parametrize("body", [{}, {"stream_format": "sse"}], ids=str)
async def test_a_client_that_reads_nothing_is_waited_for_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, body: dict
) -> None:
    monkeypatch.setattr(engine_stream, "SEND_SECONDS", 1.0)
    backend = Endless()
    before = _stalled()
    async with _port_of(backend) as port:
        with await _ask(port, body):
            await comes_true(lambda: backend.running == 1)
            made = -1
            while made != backend.made:
                made = backend.made
                await asyncio.sleep(0.4)
            assert backend.running == 1
            assert made < 1000  # a minute or two of audio, most of it in the kernel's buffers
            await comes_true(lambda: backend.running == 0)
            assert _stalled() == before + 1


async def test_a_client_that_reads_slowly_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_stream, "SEND_SECONDS", 1.0)
    backend = Endless(seconds=200)
    async with _port_of(backend) as port:
        with await _ask(port, {}) as client:
            client.settimeout(10)
            received = bytearray()
            while not received.endswith(b"0\r\n\r\n"):
                received += await asyncio.to_thread(client.recv, 1 << 18)
                await asyncio.sleep(0.05)
            assert backend.made == 200
