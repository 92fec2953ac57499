"""Whatever comes is counted once, by how it ended, whoever refused it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from prometheus_client import REGISTRY
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from api.app import create_app
from api.auth import KeyRing
from api.keyring import entry, new_key
from api.limits import KeyLimits
from api.oip.grpc_keys import KeyedGrpcServer
from api.oip.inference import Inference
from api.oip.messages import SERVICE, message
from api.received import route_of
from launch.server import free_port
from tests.api.oip_backend import FakeBackend

KEY = new_key()
RING = KeyRing(entry("ada", KEY), None, KeyLimits())
SPEECH = "/v1/audio/speech"
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Hello."]}
BEARER = {"Authorization": f"Bearer {KEY}"}
Ends = Counter[tuple[str, ...]]


@pytest.fixture
def grown() -> Callable[[str], Ends]:
    """The growth of a counter since the test began, by its labels' values."""

    def current(name: str) -> Ends:
        samples = (sample for family in REGISTRY.collect() for sample in family.samples if sample.name == name)
        return Counter({tuple(sample.labels.values()): int(sample.value) for sample in samples})

    before = {name: current(name) for name in ("cosyserve_requests_total", "cosyserve_websocket_sessions_total")}
    return lambda name: +(current(name) - before[name])


class Broken(FakeBackend):
    async def describe(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "end"),
    [
        ("POST", SPEECH, {"json": {"input": "Hello."}}, 200, ("speech", "preset", "ok")),
        ("POST", SPEECH, {"json": {"input": ""}}, 400, ("speech", "none", "input_empty")),
        ("POST", SPEECH, {"content": b"{"}, 400, ("speech", "none", "invalid_json")),
        ("POST", SPEECH, {"headers": {}}, 401, ("speech", "none", "missing_api_key")),
        ("POST", SPEECH, {"headers": {"Authorization": "Bearer x"}}, 401, ("speech", "none", "invalid_api_key")),
        ("POST", f"{SPEECH}/batch", {"json": {"items": []}}, 400, ("batch", "none", "invalid_value")),
        ("GET", "/v1/audio/voices", {}, 200, ("voices", "none", "ok")),
        ("POST", "/v1/text/normalize", {"json": {"input": "1"}}, 200, ("text", "none", "ok")),
        ("POST", "/v2/models/none/infer", {"json": {"inputs": [TENSOR]}}, 404, ("oip", "none", "model_not_found")),
        ("POST", "/v2/models/none/infer", {"headers": {}}, 401, ("oip", "none", "missing_api_key")),
    ],
)
def test_a_request_is_counted_once(method: str, path: str, options: dict, status: int, end: tuple, grown) -> None:
    with TestClient(create_app(FakeBackend(), RING)) as client:
        assert client.request(method, path, **{"headers": BEARER, **options}).status_code == status
    assert grown("cosyserve_requests_total") == {end: 1}


def test_what_nobody_expected_is_counted_too(grown) -> None:
    client = TestClient(create_app(Broken(), RING), raise_server_exceptions=False)
    assert client.post(SPEECH, json={"input": "Hello."}, headers=BEARER).status_code == 500
    assert grown("cosyserve_requests_total") == {("speech", "none", "internal_error"): 1}


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", "/ui", "/nowhere", "/v2/health/live", "/v2/models/x/ready"])
def test_probes_pages_and_lists_are_not(path: str, grown) -> None:
    TestClient(create_app(FakeBackend(), RING)).get(path, headers=BEARER)
    assert grown("cosyserve_requests_total") == {}


@pytest.mark.parametrize(
    ("headers", "message", "end"),
    [
        (BEARER, {"type": "session.close"}, "ok"),
        (BEARER, None, "cancelled"),
        ({}, None, "missing_api_key"),
    ],
)
def test_a_session_is_counted_by_its_end(headers: dict, message: dict | None, end: str, grown) -> None:
    client = TestClient(create_app(FakeBackend(), RING))
    try:
        with client.websocket_connect(f"{SPEECH}/stream", headers=headers) as socket:
            assert socket.receive_json()["type"] == "session.created"
            if message is not None:
                socket.send_json(message)
                assert socket.receive_json()["type"] == "session.done"
    except WebSocketDisconnect:
        assert end == "missing_api_key"
    assert grown("cosyserve_websocket_sessions_total") == {("speech_stream", end): 1}
    assert grown("cosyserve_requests_total") == {}


@asynccontextmanager
async def calling() -> AsyncGenerator[grpc.aio.Channel, None]:
    address, draining = f"127.0.0.1:{free_port()}", asyncio.Event()
    inference: Inference = create_app(FakeBackend(), RING).state.inference
    server = KeyedGrpcServer(inference, draining, RING)
    await server.start(address)
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    draining.set()
    await server.stop()


PAIR = ("authorization", BEARER["Authorization"])


@pytest.mark.parametrize(("metadata", "end"), [((), "missing_api_key"), ((PAIR,), "invalid_message")])
async def test_a_grpc_call_that_nobody_worked_for_is_counted(metadata: tuple, end: str, grown) -> None:
    async with calling() as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary(f"/{SERVICE}/ModelInfer")(b"\xff\xff", metadata=metadata)
    assert grown("cosyserve_requests_total") == {("oip", "none", end): 1}


async def test_each_message_of_a_grpc_stream_is_counted(grown) -> None:
    nobody = message("ModelInferRequest")(model_name="nobody").SerializeToString()
    async with calling() as channel:
        call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(metadata=(PAIR,))
        for _ in range(2):
            await call.write(nobody)
            assert b"model_not_found" in await call.read()
        await call.write(b"\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    ends = {("oip", "none", "model_not_found"): 2, ("oip", "none", "invalid_message"): 1}
    assert grown("cosyserve_requests_total") == ends


def test_a_route_has_one_name_whatever_is_in_its_path() -> None:
    for path in ("/v1/audio/voices/a%0Ab/preview", "/v1/audio/voices/x/preview"):
        assert route_of({"type": "http", "path": path}) == "voice_preview"
    assert route_of({"type": "http", "path": "/v1/audio/speech/x"}) is None
    assert route_of({"type": "lifespan"}) is None
