"""Every route and call asks for its scope, and who loses a key loses the connections that it opened."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from prometheus_client import REGISTRY
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from api import revocation
from api.app import create_app
from api.auth import Caller, KeyRing
from api.keyring import entry, new_key
from api.limits import KeyLimits
from api.oip.grpc_keys import OPEN_CALLS, KeyedGrpcServer
from api.oip.messages import SERVICE, message
from api.openapi import document, websockets
from api.revocation import CHECK_SECONDS
from api.scopes import ADMIN, ALL, SPEECH, VOICES
from runners.frames import Frame
from runners.request import SpeechRequest
from tests.api.live_server import Endless, Session, comes_true
from tests.api.oip_backend import FakeBackend

OPEN: set[str] = set()
EITHER = {SPEECH, VOICES}
# Of which scopes one is needed.
TABLE: dict[str, set[str] | frozenset[str]] = {
    "post /v1/audio/speech": {SPEECH},
    "post /v1/audio/speech/batch": {SPEECH},
    "post /v1/audio/voice-conversion": {SPEECH},
    "get /v1/audio/voices": EITHER,
    "post /v1/audio/voices": {VOICES},
    "get /v1/audio/voices/{voice_id}": EITHER,
    "patch /v1/audio/voices/{voice_id}": {VOICES},
    "delete /v1/audio/voices/{voice_id}": {VOICES},
    "post /v1/audio/voices/{voice_id}/preview": {SPEECH},
    "get /v1/pronunciation-dictionaries": EITHER,
    "post /v1/pronunciation-dictionaries": {VOICES},
    "get /v1/pronunciation-dictionaries/{dictionary_id}": EITHER,
    "delete /v1/pronunciation-dictionaries/{dictionary_id}": {VOICES},
    "post /v1/text/normalize": {SPEECH},
    "get /v1/models": ALL,
    "get /v1/models/{model_id}": ALL,
    "post /v1/models/{name}:predict": {SPEECH},
    "get /v2": ALL,
    "get /v2/health/live": OPEN,
    "get /v2/health/ready": OPEN,
    "get /v2/models": ALL,
    "get /v2/models/{name}": ALL,
    "get /v2/models/{name}/config": ALL,
    "get /v2/models/{name}/ready": ALL,
    "post /v2/models/{name}/infer": {SPEECH},
    "post /v2/models/{name}/generate": {SPEECH},
    "post /v2/models/{name}/generate_stream": {SPEECH},
    "post /v2/repository/models/{name}/load": {ADMIN},
    "post /v2/repository/models/{name}/unload": {ADMIN},
    **dict.fromkeys(("get /livez", "get /healthz", "get /readyz", "get /metrics"), OPEN),
}
# Beside the described ones: the versioned and verbose forms, what no route takes, and what only looks like one.
UNDESCRIBED: dict[str, set[str] | frozenset[str]] = {
    "post /v2/models/tiny/versions/1/infer": {SPEECH},
    "get /v2/models/tiny/versions/1/ready": ALL,
    "post /v1/models/tiny:explain": {SPEECH},
    "post /inference_sft": {SPEECH},
    "post /v2/repository/index": {ADMIN},
    "get /v1/anything": {ADMIN},
    "delete /v1/audio/voices/x/preview": {SPEECH},
    "delete /v1/audio/voices/preview": {VOICES},
    "post /v1/audio/voices/": {VOICES},
    "post /v1/audio/voices%0A": {ADMIN},  # which Starlette takes for the route without the line break
    "delete /v1//audio/voices/x": {ADMIN},
    "put /v1/models": {ADMIN},
}
CALLS: dict[str, set[str] | frozenset[str]] = {
    **dict.fromkeys(("ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"), ALL),
    "ModelInfer": {SPEECH},
    "ModelStreamInfer": {SPEECH},
    "RepositoryModelLoad": {ADMIN},
    "RepositoryModelUnload": {ADMIN},
}
# A key of each scope, one of two, and one that names none.
HELD = {SPEECH: {SPEECH}, VOICES: {VOICES}, ADMIN: {ADMIN}, "speech,admin": {SPEECH, ADMIN}, "": ALL}
KEYS = {scopes: new_key() for scopes in HELD}


def ring() -> KeyRing:
    lines = [
        f"{entry(f'key{number}', KEYS[scopes])} {f'scopes={scopes}' if scopes else ''}"
        for number, scopes in enumerate(HELD)
    ]
    return KeyRing(";".join(lines), None, KeyLimits())


def bearer(scopes: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[scopes]}"}


def test_the_table_has_every_route() -> None:
    paths = document(create_app(FakeBackend()))["paths"]
    assert {f"{method} {path}" for path, methods in paths.items() for method in methods} == set(TABLE)


@pytest.mark.parametrize("scopes", HELD)
async def test_a_route_takes_who_has_its_scope(scopes: str) -> None:
    app = create_app(FakeBackend(), ring())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
        for route, needed in {**TABLE, **UNDESCRIBED}.items():
            method, path = route.split(" ")
            answer = await http.request(method, re.sub(r"\{\w+\}", "tiny", path), headers=bearer(scopes))
            refused = bool(needed) and not HELD[scopes] & needed
            assert (answer.status_code == 403) == refused, (route, answer.text)
            assert answer.status_code != 401
            assert not refused or "insufficient_scope" in answer.text


def test_websockets_are_for_speech() -> None:
    app = create_app(FakeBackend(), ring())
    http = TestClient(app)
    for path in [route.path for route in websockets(app)]:
        for scopes, held in HELD.items():
            try:
                with http.websocket_connect(path, headers=bearer(scopes)):
                    assert SPEECH in held
            except WebSocketDenialResponse as refused:
                assert SPEECH not in held
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_scope")


@dataclass
class Running:
    app: FastAPI
    url: str
    channel: grpc.aio.Channel
    calls: set[str]


class Unhurried(Endless):
    """Leaves the machine time for others."""

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        async with aclosing(super().stream(request)) as frames:
            async for frame in frames:
                yield frame
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(keys: KeyRing, backend: FakeBackend) -> AsyncGenerator[Running, None]:
    """HTTP and gRPC, each on a port of its own."""
    app = create_app(backend, keys)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    http = asyncio.create_task(server.serve())
    await comes_true(lambda: server.started)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    inference = KeyedGrpcServer(app.state.inference, app.state.draining, keys)
    await inference.start(address)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Running(app, f"ws://127.0.0.1:{port}", channel, set(inference._answers()))
    finally:
        app.state.draining.set()
        await inference.stop()
        server.should_exit = True
        await http


async def test_grpc_calls_ask_for_the_same_scopes() -> None:
    async with serving(ring(), FakeBackend()) as running:
        assert running.calls == set(CALLS) | OPEN_CALLS
        for name, needed in CALLS.items():
            for scopes, held in HELD.items():
                metadata = (("authorization", f"Bearer {KEYS[scopes]}"),)
                code = grpc.StatusCode.OK
                try:
                    if name == "ModelStreamInfer":
                        stream = running.channel.stream_stream(f"/{SERVICE}/{name}")(iter(()), metadata=metadata)
                        async for _ in stream:
                            pass
                    else:
                        await running.channel.unary_unary(f"/{SERVICE}/{name}")(b"", metadata=metadata, timeout=10)
                except grpc.aio.AioRpcError as error:
                    code = error.code()
                assert (code is grpc.StatusCode.PERMISSION_DENIED) == (not held & needed), (name, scopes)


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{entry('gone', KEYS[SPEECH])}\n{entry('kept', KEYS[ADMIN])}")
    return path


@pytest.mark.parametrize(("loses", "code"), [("key", "invalid_api_key"), ("scope", "insufficient_scope")])
async def test_what_a_key_opened_ends_soon_after_the_key(loses: str, code: str, keys_file: Path) -> None:
    backend = Unhurried()
    ended = _sessions_that_ended(code)
    async with serving(KeyRing("", keys_file, KeyLimits()), backend) as running:
        url = f"{running.url}/v1/audio/speech/stream"
        async with (
            connect(url, additional_headers=bearer(SPEECH)) as speaking,
            connect(url, additional_headers=bearer(SPEECH)) as silent,
            connect(url, additional_headers=bearer(ADMIN), close_timeout=0.1) as other,
        ):
            session, kept = Session(speaking), Session(other)
            for one in (session, kept):
                await one.say("session.config", format="pcm")
                await one.say("input.text", text="Hello. And more. ")
                await one.audio_has_begun()
            assert json.loads(await silent.recv())["type"] == "session.created"
            stream = running.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(
                metadata=(("authorization", f"Bearer {KEYS[SPEECH]}"),)
            )
            await stream.write(message("ModelInferRequest")(model_name="nobody").SerializeToString())
            assert await stream.read()
            each, rest = divmod(backend.running, 2)
            assert (each > 0, rest) == (True, 0)
            line, others = keys_file.read_text().split("\n")
            keys_file.write_text(f"{line} scopes=voices\n{others}" if loses == "scope" else others)
            began = time.monotonic()
            reading = asyncio.gather(*(_until_closed(socket) for socket in (speaking, silent)))
            assert await asyncio.wait_for(reading, 15) == [(1008, code)] * 2
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            status = grpc.StatusCode.UNAUTHENTICATED if loses == "key" else grpc.StatusCode.PERMISSION_DENIED
            assert (refused.value.code(), refused.value.details().split(":")[0]) == (status, code)
            assert time.monotonic() - began < CHECK_SECONDS + 3
            await comes_true(lambda: backend.running == each)
            data: Any = await kept.socket.recv()
            assert isinstance(data, bytes)  # who kept the key goes on listening
            await comes_true(lambda: _sessions_that_ended(code) == ended + 2)


async def test_a_check_that_breaks_takes_nobody_s_session(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the source of keys fails with: the session speaks on, and ends when its key is seen to be gone."""

    class Breaking(KeyRing):
        broken = False

        async def caller(self, authorization: str | None) -> Caller:
            if self.broken:
                raise OSError("no such host")
            return await super().caller(authorization)

    monkeypatch.setattr(revocation, "CHECK_SECONDS", 0.05)
    keys = Breaking("", keys_file, KeyLimits())
    async with (
        serving(keys, FakeBackend()) as running,
        connect(f"{running.url}/v1/audio/speech/stream", additional_headers=bearer(SPEECH)) as socket,
    ):
        stream = running.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(
            metadata=(("authorization", f"Bearer {KEYS[SPEECH]}"),)
        )
        session = Session(socket)
        await session.until("session.created")
        await stream.write(message("ModelInferRequest")(model_name="nobody").SerializeToString())
        assert await stream.read()
        keys.broken = True
        await asyncio.sleep(0.3)
        await session.say("input.text", text="Hello. And more. ")
        await session.say("input.flush")
        await session.until("utterance.done")
        await stream.write(message("ModelInferRequest")(model_name="nobody").SerializeToString())
        assert await stream.read()
        assert len([r for r in caplog.records if "could not be asked" in r.message]) == 2  # one for each of them
        keys_file.write_text("")
        keys.broken = False
        assert await asyncio.wait_for(_until_closed(socket), 10) == (1008, "invalid_api_key")
        assert await asyncio.wait_for(stream.code(), 10) is grpc.StatusCode.UNAUTHENTICATED


def _sessions_that_ended(outcome: str) -> float:
    labels = {"route": "speech_stream", "outcome": outcome}
    return REGISTRY.get_sample_value("cosyserve_websocket_sessions_total", labels) or 0.0


async def _until_closed(socket: Any) -> tuple[int, str]:
    with suppress(ConnectionClosed):
        while True:
            await socket.recv()
    return socket.close_code, socket.close_reason
