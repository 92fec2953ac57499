"""Clients that read slowly or not at all hold little memory and, in the end, nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext, suppress
from types import SimpleNamespace

import grpc
import pytest
import uvicorn
from prometheus_client import REGISTRY

from api import departure
from api.app import create_app
from api.departure import StalledError
from api.oip import grpc_answers
from api.oip.grpc_server import GrpcServer
from api.oip.messages import SERVICE, message
from launch.server import free_port
from tests.api.live_server import Endless, comes_true
from tests.api.oip_backend import RATE

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


@asynccontextmanager
async def _grpc(backend: Endless) -> AsyncGenerator[tuple[GrpcServer, grpc.aio.Channel], None]:
    state = create_app(backend).state
    server, address = GrpcServer(state.inference, state.draining), f"127.0.0.1:{free_port()}"
    await server.start(address)
    try:
        async with grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
            yield server, channel
    finally:
        state.draining.set()
        await server.stop()


def _call(channel: grpc.aio.Channel, name: str) -> grpc.aio.StreamStreamCall:
    """One that takes an answer only when it is read, also of a call that has one only."""
    asked = message("ModelInferRequest")(model_name="cosyvoice2", raw_input_contents=[b"\6\0\0\0Hello."])
    asked.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])

    async def requests() -> AsyncGenerator[bytes, None]:
        yield asked.SerializeToString()

    return channel.stream_stream(f"/{SERVICE}/{name}")(requests())


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
    monkeypatch.setattr(departure, "SEND_SECONDS", 1.0)
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


async def test_a_file_that_nobody_takes_is_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(departure, "SEND_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "cosyserve.request")
    whole = 600 * 2 * RATE
    async with _port_of(Endless(seconds=600)) as port:
        with await _ask(port, {"stream": False}) as stalled, await _ask(port, {"stream": False}) as slow:
            slow.settimeout(10)
            received = 0
            while received < whole:
                received += len(await asyncio.to_thread(slow.recv, 1 << 19))
                await asyncio.sleep(0.01)
            await comes_true(lambda: any("stalled" in outcome for outcome in _outcomes(caplog)))
            assert sorted(_outcomes(caplog)) == ["client_stalled", "ok"]
            stalled.settimeout(10)
            rest = 0
            while data := await asyncio.to_thread(stalled.recv, 1 << 20):
                rest += len(data)
            assert 0 < rest < whole


def _outcomes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record)["fields"]["outcome"] for record in caplog.records if record.name == "cosyserve.request"]


async def test_a_grpc_client_that_reads_nothing_is_given_up_and_told_when_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(departure, "SEND_SECONDS", 1.0)
    backend, before = Endless(), _stalled()
    async with _grpc(backend) as (_, channel):
        stalled, other = _call(channel, "ModelStreamInfer"), _call(channel, "ModelStreamInfer")
        await comes_true(lambda: backend.running == 2)
        for _ in range(3):
            assert await other.read()
        other.cancel()
        await comes_true(lambda: backend.running == 0)
        assert _stalled() == before + 1
        assert backend.made < 1000
        heard = 0
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while await asyncio.wait_for(stalled.read(), 10):
                heard += 1
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (ended.value.details() or "").startswith("client_stalled: ")
        assert heard > 3


async def test_whole_grpc_answers_that_nobody_takes_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "SEND_SECONDS", 0.5)
    monkeypatch.setattr(grpc_answers, "SLOWEST_BYTES_PER_SECOND", 2**30)
    size = 600 * 4 * RATE
    monkeypatch.setattr(grpc_answers, "MAX_UNTAKEN_BYTES", int(1.5 * size))
    backend, before = Endless(seconds=600), _stalled()
    async with _grpc(backend) as (server, channel):
        stalled = _call(channel, "ModelInfer")
        await comes_true(lambda: _stalled() == before + 1)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _call(channel, "ModelInfer").read()
        assert (refused.value.code(), (refused.value.details() or "").split(":")[0]) == (
            grpc.StatusCode.UNAVAILABLE,
            "overloaded",
        )
        assert await channel.unary_unary(f"/{SERVICE}/ServerReady")(b"")  # small ones are not held up
        stalled.cancel()
        answer = b""

        async def answered() -> None:
            nonlocal answer
            while not answer:
                with suppress(grpc.aio.AioRpcError):
                    answer = await _call(channel, "ModelInfer").read()

        await asyncio.wait_for(answered(), 20)
        assert len(answer) > size
        assert _stalled() == before + 1
        held = _call(channel, "ModelInfer")
        await comes_true(lambda: _stalled() == before + 2)
        assert not held.done()
        await asyncio.wait_for(server.stop(), 5)  # who has been given up is not waited for


@pytest.mark.parametrize(("size", "taken"), [(0, False), (1_000, True)])
async def test_a_large_grpc_answer_has_the_time_that_a_slow_client_needs(
    size: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(grpc_answers, "SLOWEST_BYTES_PER_SECOND", 500)
    context = SimpleNamespace(write=lambda data: asyncio.sleep(0.5))
    with nullcontext() if taken else pytest.raises(StalledError):
        await grpc_answers.write(context, bytes(size))


async def test_a_client_that_reads_slowly_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "SEND_SECONDS", 1.0)
    backend = Endless(seconds=200)
    async with _port_of(backend) as port:
        with await _ask(port, {}) as client:
            client.settimeout(10)
            received = bytearray()
            while not received.endswith(b"0\r\n\r\n"):
                received += await asyncio.to_thread(client.recv, 1 << 18)
                await asyncio.sleep(0.05)
            assert backend.made == 200
