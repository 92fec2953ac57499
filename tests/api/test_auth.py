"""Who has a key comes in, within the key's limits; nobody else does, by no route and no protocol."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from fastapi import FastAPI, WebSocket
from starlette.testclient import TestClient, WebSocketDenialResponse

from api.app import create_app
from api.auth import KEY_LIMITS, KeyRing
from api.errors import ApiError
from api.exposure import ALLOW_OPEN, check_exposure, listening_hosts
from api.keyring import KEYS, KEYS_FILE, entry, new_key, parse_keys
from api.limits import KeyLimits, Meter, parse_limits, spend_characters
from api.oip.grpc_keys import OPEN_CALLS, KeyedGrpcServer
from api.oip.messages import SERVICE, message
from api.openapi import document, websockets
from api.scopes import ALL
from launch import keys as keys_command
from runners.request import RequestError
from tests.api.oip_backend import FakeBackend

KEY = f"cosy_{43 * 'k'}"  # the same in every process: names of tests have it
SPEECH = {"input": "Hello.", "response_format": "pcm"}
OPEN = {"/livez", "/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
BEARER = {"Authorization": f"Bearer {KEY}"}


def ring(limits: str = "", key: str = KEY) -> KeyRing:
    return KeyRing(f"alice {entry('alice', key).split()[1]} {limits}", None, KeyLimits())


@pytest.fixture
def app() -> FastAPI:
    app = create_app(FakeBackend(), ring())

    @app.websocket("/v1/echo")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())

    app.router.routes.insert(0, app.router.routes.pop())  # before the route that takes what no other takes
    return app


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")


async def test_every_route_asks_for_a_key_but_probes_and_pages(app: FastAPI) -> None:
    described = document(app)["paths"]
    assert len(described) > 15
    paths = {path: method.upper() for path, methods in described.items() for method in methods}
    paths |= {"/v1/any%0Athing": "GET"}
    paths |= {"/v1/anything": "GET", "/v2/anything": "PUT", "/inference_sft": "POST", "/v1/audio/speech": "OPTIONS"}
    paths |= {"/ui/upload": "POST"}
    async with client(app) as http:
        for path, method in paths.items():
            asked = re.sub(r"\{\w+\}", "tiny", path)
            for headers, code in (({}, "missing_api_key"), ({"Authorization": "Bearer no"}, "invalid_api_key")):
                answer = await http.request(method, asked, headers=headers)
                assert (answer.status_code == 401) == (path not in OPEN), path
                if path not in OPEN:
                    assert code in answer.text
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert answer.headers["X-Request-Id"]
            assert (await http.request(method, asked, headers=BEARER)).status_code != 401, path


@pytest.mark.parametrize(
    "authorization",
    [
        f"Basic {KEY}",
        KEY,
        "Bearer",
        "Bearer ",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer x {KEY}",
        "Bearer é",
        "Bearer " + "x" * 60_000,
    ],
)
async def test_what_is_not_the_key_is_refused(app: FastAPI, authorization: str) -> None:
    async with client(app) as http:
        answer = await http.get("/v1/models", headers={b"Authorization": authorization.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] in ("missing_api_key", "invalid_api_key")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER  "])
async def test_the_key_comes_in(app: FastAPI, scheme: str) -> None:
    async with client(app) as http:
        answer = await http.post("/v1/audio/speech", json=SPEECH, headers={"Authorization": f"{scheme} {KEY}"})
    assert answer.status_code == 200
    assert len(answer.content) > 1000


def test_websockets_need_the_key_too(app: FastAPI) -> None:
    http = TestClient(app)
    paths = [route.path for route in websockets(app)]
    assert "/v1/echo" in paths
    for path in paths:
        with pytest.raises(WebSocketDenialResponse) as refused, http.websocket_connect(path):
            pass
        assert refused.value.status_code == 401
        assert refused.value.json()["error"]["code"] == "missing_api_key"
    with http.websocket_connect("/v1/echo", headers=BEARER) as socket:
        socket.send_text("hello")
        assert socket.receive_text() == "hello"


async def test_a_server_that_cannot_refuse_a_websocket_by_a_response_closes_it(app: FastAPI) -> None:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/v1/echo", "headers": [], "query_string": b"", "subprotocols": []}
    await app(scope, receive, send)
    assert [(event["type"], event["code"]) for event in sent] == [("websocket.close", 1008)]


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    state = create_app(FakeBackend()).state
    server = KeyedGrpcServer(state.inference, state.draining, ring("requests_per_minute=12"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await server.start(f"127.0.0.1:{port}")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    state.draining.set()
    await server.stop()


async def test_grpc_asks_for_the_same_keys(channel: grpc.aio.Channel) -> None:
    async def call(name: str, metadata: tuple[tuple[str, str], ...]) -> Any:
        read = message(f"{name}Response").FromString
        path, request = f"/{SERVICE}/{name}", message(f"{name}Request")()
        if name == "ModelInfer":
            read = message("ModelInferResponse").FromString
        return await channel.unary_unary(path, lambda value: value.SerializeToString(), read)(
            request, metadata=metadata, timeout=10
        )

    names = {"ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelInfer", "RepositoryModelLoad"}
    for name in names:
        for metadata in ((), (("authorization", "Bearer no"),)):
            if name in OPEN_CALLS:
                await call(name, metadata)
                continue
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(name, metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(aiter(stream(iter([b""]))))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for _ in range(12):
        assert (await call("ServerMetadata", (("authorization", f"Bearer {KEY}"),))).name
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call("ServerMetadata", (("authorization", f"Bearer {KEY}"),))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_changed_file_changes_the_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, first, second = tmp_path / "keys", new_key(), new_key()
    path.write_text(f"# ours\n\n{entry('a', first)}  # of a\n")
    environment = {KEYS_FILE: str(path), KEYS: entry("always", KEY), KEY_LIMITS: "concurrent=2"}
    keys = KeyRing.from_environment(environment)
    assert keys is not None

    async def known() -> list[bool]:
        found = []
        for key in (KEY, first, second):
            try:
                await keys.caller(f"Bearer {key}")
                found.append(True)
            except ApiError:
                found.append(False)
        return found

    assert await known() == [True, True, False]
    path.write_text(f"{entry('a', first)}\n{entry('b', second)} concurrent=none requests_per_second=3\n")
    assert await known() == [True, True, True]
    assert (await keys.caller(f"Bearer {first}")).meter.limits == KeyLimits(concurrent=2)
    assert (await keys.caller(f"Bearer {second}")).meter.limits == KeyLimits(requests_per_second=3)
    (tmp_path / "next").write_text(entry("b", second))
    os.replace(tmp_path / "next", path)
    assert await known() == [True, False, True]
    path.write_text("b not-a-hash")
    assert await known() == [True, False, True]
    path.unlink()
    assert await known() == [True, False, True]
    assert len(caplog.records) == 2  # one for each change, however many requests there were


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("alice", "line 1: not NAME sha256:HEX"),
        (f"alice {KEY}", "line 1: not NAME sha256:HEX"),
        (f"al/ice {entry('alice', KEY).split()[1]}", "line 1: not NAME"),
        (f"{entry('a', KEY)};{entry('a', KEY + 'x')}", "line 2: a second key"),
        (f"{entry('a', KEY)} colour=3", "no limit 'colour'"),
        (f"{entry('a', KEY)} concurrent=0", "concurrent must be"),
        (f"{entry('a', KEY)} concurrent", "concurrent must be"),
        (f"{entry('a', KEY)} scopes=speech,all", "scopes are some of"),
        (f"{entry('a', KEY)} scopes=", "scopes are some of"),
        (f"{entry('a', KEY)} scopes=speech scopes=admin", "scopes= comes twice"),
    ],
)
def test_keys_that_are_none_stop_the_start_with_a_sentence_without_the_key(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        KeyRing.from_environment({KEYS: line})
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("environment", [{KEYS_FILE: "/nowhere/keys"}, {KEYS: "a b", KEY_LIMITS: "x=1"}])
def test_keys_that_cannot_be_read_stop_the_start(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|no limit 'x'"):
        KeyRing.from_environment(environment)


async def test_the_command_prints_a_line_that_lets_its_key_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["keys", "new", "bob@example.com"])
    keys_command.main()
    printed = capsys.readouterr()
    shown = re.search(r"cosy_[\w-]{43}", printed.err)
    assert shown is not None
    assert shown[0] not in printed.out
    (key,) = parse_keys(printed.out, "out", KeyLimits())
    assert key.name == "bob@example.com"
    caller = await KeyRing(printed.out, None, KeyLimits()).caller(f"Bearer {shown[0]}")
    assert (caller.name, caller.scopes, caller.meter.limits) == ("bob@example.com", ALL, KeyLimits())


async def test_over_its_rate_a_key_is_told_when_to_come_back() -> None:
    async with client(create_app(FakeBackend(), ring("requests_per_minute=2 characters_per_day=100"))) as http:
        left = []
        for _ in range(2):
            answer = await http.get("/v1/models", headers=BEARER)
            assert answer.status_code == 200
            left.append(answer.headers["x-ratelimit-remaining-requests"])
        assert left == ["1", "0"]
        for path in ("/v1/models", "/v2/models"):
            answer = await http.get(path, headers=BEARER)
            assert answer.status_code == 429
            assert "rate_limited" in answer.text
            assert 20 <= int(answer.headers["Retry-After"]) <= 30
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-remaining-characters"] == "100"
        assert (await http.get("/livez")).status_code == 404  # BentoML's: open, and not here
        assert (await http.get("/v2/health/live", headers=BEARER)).status_code == 200


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _refused(meter: Meter) -> ApiError | None:
    try:
        with meter.request():
            return None
    except ApiError as problem:
        return problem


def test_tokens_come_back_evenly_and_both_rates_count() -> None:
    clock = Clock()
    meter = Meter(KeyLimits(requests_per_second=2, requests_per_minute=3), clock)
    assert [_refused(meter) is None for _ in range(3)] == [True, True, False]
    clock.now += 0.5
    assert [_refused(meter) is None for _ in range(2)] == [True, False]  # the minute's three are used up
    clock.now += 18.9
    assert _refused(meter) is not None
    clock.now += 0.7
    assert _refused(meter) is None
    clock.now += 3600
    assert [_refused(meter) is None for _ in range(3)] == [True, True, False]


def test_requests_at_once_end_when_they_end() -> None:
    meter = Meter(KeyLimits(concurrent=2))
    with meter.request():
        with pytest.raises(RuntimeError), meter.request():
            problem = _refused(meter)
            assert problem is not None
            assert (problem.status, problem.code, problem.headers()["Retry-After"]) == (429, "rate_limited", "1")
            raise RuntimeError
        assert _refused(meter) is None


def test_characters_are_charged_to_the_key_of_the_running_request() -> None:
    clock = Clock()
    meter = Meter(KeyLimits(characters_per_day=1000), clock)
    spend_characters(10**9)  # of no key
    with meter.request():
        spend_characters(900)
        with pytest.raises(ApiError, match="100 are left") as refused:
            spend_characters(200)
        assert (refused.value.status, refused.value.code, refused.value.param) == (429, "rate_limited", "input")
        assert refused.value.headers()["Retry-After"] == "8640"
        with pytest.raises(ApiError, match="1,000 a day") as refused:
            spend_characters(1001)
        assert (refused.value.status, refused.value.code) == (400, "input_too_long")
        clock.now += 8640.1
        spend_characters(200)
    spend_characters(10**9)


def test_other_limits_are_adopted_without_losing_who_is_inside() -> None:
    assert parse_limits(["concurrent=none"], KeyLimits(concurrent=4, requests_per_second=1)) == KeyLimits(1)
    meter = Meter(KeyLimits())
    with meter.request():
        meter.adopt(KeyLimits(concurrent=1))
        assert _refused(meter) is not None
    assert _refused(meter) is None


@pytest.mark.parametrize(
    ("host", "keys", "environment", "refused"),
    [
        ("127.0.0.1", None, {}, False),
        ("127.8.8.8", None, {}, False),
        ("localhost", None, {}, False),
        ("::1", None, {}, False),
        ("0.0.0.0", None, {}, True),
        ("::", None, {}, True),
        ("192.0.2.7", None, {}, True),
        ("0.0.0.0", None, {ALLOW_OPEN: "0"}, True),
        ("0.0.0.0", None, {ALLOW_OPEN: "1"}, False),
        ("0.0.0.0", ring(), {}, False),
    ],
)
def test_open_to_everybody_only_where_somebody_said_so(
    host: str, keys: KeyRing | None, environment: dict[str, str], refused: bool
) -> None:
    if refused:
        with pytest.raises(ValueError, match=f"{re.escape(host)} without API keys .* {ALLOW_OPEN}=1"):
            check_exposure(["127.0.0.1", host], keys, environment)
    else:
        check_exposure(["127.0.0.1", host], keys, environment)


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.77", 0))
        taken.listen()
        yield "127.0.0.77"


def test_where_a_process_listens_is_seen_from_its_sockets(listening: str) -> None:
    with socket.socket() as idle, socket.socket(socket.AF_UNIX):
        idle.bind(("127.0.0.78", 0))
        assert listening in list(listening_hosts())
        assert "127.0.0.78" not in list(listening_hosts())


async def test_characters_cost_nothing_before_there_is_audio() -> None:
    backend = FakeBackend(fail_after=0, error=RequestError("overloaded", "The engine is full.", 429))
    async with client(create_app(backend, ring("characters_per_day=10"))) as http:

        async def left() -> str:
            return (await http.get("/v1/models", headers=BEARER)).headers["x-ratelimit-remaining-characters"]

        for _ in range(3):
            assert (await http.post("/v1/audio/speech", json=SPEECH, headers=BEARER)).status_code == 429
        assert await left() == "10"
        backend.fail_after = None
        assert (await http.post("/v1/audio/speech", json=SPEECH, headers=BEARER)).status_code == 200
        assert await left() == "4"
        spoken = len(backend.requests)
        answer = await http.post("/v1/audio/speech", json=SPEECH, headers=BEARER)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limited")
        assert len(backend.requests) == spoken  # refused before any work


@pytest.mark.parametrize(
    ("local", "headers", "allowed"),
    [
        (True, {"Host": "localhost:3000"}, True),
        (True, {"Host": "127.8.8.8"}, True),
        (True, {"Host": "[::1]:3000", "Origin": "http://[::1]:3000"}, True),
        (True, {"Host": "tts.localhost:3000", "Origin": "http://TTS.localhost:3000"}, True),
        (True, {"Host": "evil.example:3000"}, False),  # a name that its owner points at this machine
        (True, {"Host": "localhost.evil.example"}, False),
        (True, {"Host": "192.0.2.7"}, False),
        (True, {"Host": "localhost:3000", "Origin": "http://localhost:8080"}, False),
        (True, {"Host": "localhost:3000", "Origin": "https://evil.example"}, False),
        (True, {"Host": "localhost:3000", "Origin": "null"}, False),
        (False, {"Host": "tts.example", "Origin": "https://tts.example"}, True),
        (False, {"Host": "inner:3000", "X-Forwarded-Host": "tts.example", "Origin": "https://tts.example"}, True),
        (False, {"Host": "tts.example"}, True),
        (False, {"Host": "tts.example", "Origin": "https://evil.example"}, False),
    ],
)
async def test_without_keys_a_page_from_elsewhere_gets_nothing(
    local: bool, headers: dict[str, str], allowed: bool
) -> None:
    backend = FakeBackend()
    app = create_app(backend, local=local)
    async with client(app) as http:
        answer = await http.post("/v1/audio/speech", json=SPEECH, headers=headers)
        assert answer.status_code == (200 if allowed else 403)
        if not allowed:
            assert answer.json()["error"]["code"] == "origin_not_allowed"
            assert not backend.requests
        inference = await http.get("/v2/models/tiny", headers=headers)
        assert inference.status_code == answer.status_code
        assert (await http.get("/metrics", headers=headers)).status_code == 200
    if not allowed:
        with (
            pytest.raises(WebSocketDenialResponse) as refused,
            TestClient(app).websocket_connect("/v1/audio/speech/stream", headers=headers),
        ):
            pass
        assert refused.value.status_code == 403


def test_the_command_adds_a_line_to_a_file_that_stays_one_of_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys"
    for name in ("a", "b"):
        monkeypatch.setattr(sys, "argv", ["keys", "new", name, str(path)])
        keys_command.main()
        path.write_text(path.read_text().rstrip())  # as an editor may leave it
    assert capsys.readouterr().out == ""
    before = path.read_text()
    assert [key.name for key in parse_keys(before, "keys", KeyLimits())] == ["a", "b"]
    monkeypatch.setattr(sys, "argv", ["keys", "new", "a", str(path)])
    with pytest.raises(SystemExit):
        keys_command.main()
    assert "a second key has the name a" in capsys.readouterr().err
    assert path.read_text() == before


async def test_each_request_of_a_grpc_stream_is_one_of_the_keys(channel: grpc.aio.Channel) -> None:
    stream = channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer",
        lambda value: value.SerializeToString(),
        message("ModelStreamInferResponse").FromString,
    )(metadata=(("authorization", f"Bearer {KEY}"),), timeout=30)
    asked = message("ModelInferRequest")(model_name="tiny")
    text = asked.inputs.add(name="text", datatype="BYTES", shape=[1])
    text.contents.bytes_contents.append(b"Hello.")
    for _ in range(13):
        await stream.write(asked)
    await stream.done_writing()
    problems = [answer.error_message async for answer in stream if answer.error_message]
    assert len(problems) == 1
    assert problems[0].startswith("rate_limited: ")


async def test_each_instance_of_a_prediction_is_one_request() -> None:
    async with client(create_app(FakeBackend(), ring("requests_per_minute=4"))) as http:
        for count, status in ((3, 200), (2, 429)):
            body = {"instances": [{"text": "Hello."}] * count}
            answer = await http.post("/v1/models/tiny:predict", json=body, headers=BEARER)
            assert answer.status_code == status, answer.text
