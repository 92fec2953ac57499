"""Traces and logs of the real service: what a trace shows, and what a line in the log tells and does not tell."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import websockets

from api.keyring import entry, new_key
from api.oip.messages import SERVICE, message
from launch.server import Server, free_port
from tests.service.conftest import recording
from tests.service.otlp_collector import Collector, SentSpan

SPEECH = "/v1/audio/speech"
ROOT = "POST /v1/audio/speech"
STAGES = {"normalise", "tokenise", "prefill", "decode", "flow", "vocoder", "encode_audio"}
SECRET = "xylophonist"  # a word that no line of a log may have
WRONG_KEY = "cosy_nobody_knows_this_one"


@dataclass(frozen=True)
class Watched:
    """A server that sends traces and logs JSON, with a key; `http` brings it."""

    server: Server
    collector: Collector
    http: httpx.Client
    key: str
    grpc_address: str

    @property
    def log(self) -> str:
        return self.server.log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        whole, _, _ = self.log.rpartition("\n")  # the last line may be on its way
        return [json.loads(line) for line in whole.splitlines()]

    def line(self, request_id: str) -> dict[str, Any]:
        """The one line of that request."""
        return _eventually(lambda: _only(one for one in self.lines() if one.get("request_id") == request_id))

    def speak(self, trace: str, **body: Any) -> httpx.Response:
        body = {"input": "Good morning to all of you.", "stream": False, **body}
        answer = self.http.post(SPEECH, json=body, headers={"traceparent": trace})
        assert answer.status_code == 200, answer.text
        return answer


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    key, port = new_key(), free_port()
    log = Path(tmp_path_factory.mktemp("log")) / "server.log"
    with Collector() as collector:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "COSYSERVE_LOG_FORMAT": "json",
            "COSYSERVE_API_KEYS": entry("ada", key),
            "GRPC_PORT": str(port),
        }
        with Server(env=env, log=log) as server:
            server.wait_ready(timeout=120)
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=server.url, timeout=120, headers=headers) as http:
                yield Watched(server, collector, http, key, f"127.0.0.1:{port}")


def _traceparent(sampled: bool = True) -> tuple[str, str, str]:
    """The header, its trace and its parent."""
    trace_id, parent = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace_id}-{parent}-0{int(sampled)}", trace_id, parent


def _whole(spans: dict[str, SentSpan]) -> bool:
    return ROOT in spans and set(spans) >= STAGES


def _eventually(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 10
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def _only(items: Iterator[Any]) -> Any:
    """None while there is none."""
    values = list(items)
    assert len(values) < 2
    return values[0] if values else None


@pytest.mark.parametrize("stream", [True, False])
def test_one_trace_from_the_client_into_the_engine(watched: Watched, stream: bool) -> None:
    trace, trace_id, parent = _traceparent()
    watched.speak(trace, stream=stream, response_format="flac")
    spans = watched.collector.trace(trace_id, _whole)
    root, engine = spans[ROOT], spans["engine"]
    assert root.parent_id == parent and engine.parent_id == root.span_id
    assert {spans[name].parent_id for name in ("normalise", "encode_audio")} == {root.span_id}
    assert {spans[name].parent_id for name in STAGES - {"normalise", "encode_audio"}} == {engine.span_id}
    assert all(spans[name].seconds <= root.seconds for name in STAGES)
    assert spans["decode"].attributes["cosyserve.steps"] > 20 and spans["decode"].attributes["cosyserve.busy_s"] > 0
    assert root.attributes["cosyserve.key"] == "ada" and root.attributes["http.response.status_code"] == 200
    assert len(watched.collector.spans) < 100 and watched.collector.services == {"cosyserve"}


def test_a_recording_is_part_of_the_trace(watched: Watched) -> None:
    trace, trace_id, _ = _traceparent()
    watched.speak(trace, ref_audio=recording())
    spans = watched.collector.trace(
        trace_id, lambda spans: _whole(spans) and {"reference", "encode_reference"} <= set(spans)
    )
    assert spans["encode_reference"].parent_id == spans[ROOT].span_id
    assert spans[ROOT].attributes["cosyserve.mode"] == "cross_lingual"


async def test_requests_that_shared_steps_link_to_each_other(watched: Watched) -> None:
    traces = [_traceparent() for _ in range(2)]
    text = "This takes long enough for the other one to come, and both of them are decoded together then."
    await asyncio.gather(*(asyncio.to_thread(watched.speak, trace, input=text) for trace, _, _ in traces))
    one, other = (watched.collector.trace(trace_id, _whole) for _, trace_id, _ in traces)
    assert other["engine"].span_id in one["decode"].links and one["engine"].span_id in other["decode"].links
    assert one["decode"].attributes["cosyserve.batch_most"] == 2


@pytest.mark.parametrize(
    "malformed", ["00-xyz-01", "ff-" + "1" * 32 + "-" + "2" * 16 + "-01", "00-" + "0" * 32 + "-" + "2" * 16 + "-01"]
)
def test_a_malformed_trace_is_as_good_as_none(watched: Watched, malformed: str) -> None:
    answer = watched.http.get("/v1/models", headers={"traceparent": malformed})
    trace_id = watched.line(answer.headers["x-request-id"])["trace_id"]
    assert trace_id not in malformed
    (root,) = watched.collector.trace(trace_id, len).values()
    assert not root.parent_id


def test_a_trace_that_its_client_does_not_record_is_not_sent(watched: Watched) -> None:
    (unwanted, unwanted_id, _), (wanted, wanted_id, _) = _traceparent(sampled=False), _traceparent()
    answer = watched.speak(unwanted)
    watched.speak(wanted)
    watched.collector.trace(wanted_id, _whole)
    assert not [span for span in watched.collector.spans if span.trace_id == unwanted_id]
    assert watched.line(answer.headers["x-request-id"])["trace_id"] == unwanted_id


def test_a_line_tells_how_a_request_went(watched: Watched) -> None:
    body = {"input": "Good morning.", "stream": False}
    watched.http.post(SPEECH, json=body, headers={"X-Request-Id": "mine-1"})
    line = watched.line("mine-1")
    assert (line["route"], line["method"], line["status"], line["outcome"]) == (SPEECH, "POST", 200, "ok")
    assert (line["mode"], line["key"], line["characters"]) == ("preset", "ada", 13)
    assert 0 <= line["queue_wait_s"] < line["ttfa_s"] < line["duration_s"]
    assert line["rtf"] == pytest.approx(line["duration_s"] / line["audio_s"], rel=0.01)


def _refusals() -> list[tuple[str, dict[str, Any], str]]:
    """What is asked for with the word that must not be told, and the outcome."""
    return [
        (SPEECH, {"json": {"input": SECRET, "voice": SECRET}}, "voice_not_found"),
        (SPEECH, {"json": {"input": SECRET, SECRET: 1}}, "unknown_parameter"),
        (SPEECH, {"json": {"input": f"<speak><{SECRET}/></speak>", "input_type": "ssml"}}, "unsupported_markup"),
        (SPEECH, {"json": {"input": SECRET, "pronunciation": [{"text": SECRET, "cmu": SECRET}]}}, "unknown_phone"),
        (
            SPEECH,
            {"json": {"input": SECRET, "ref_audio": f"data:audio/wav;base64,{SECRET}", "ref_text": SECRET}},
            "ref_audio_invalid",
        ),
        (SPEECH, {"content": f'{{"input": "{SECRET}'}, "invalid_json"),
        (SPEECH, {"json": {"input": SECRET}, "headers": {"Authorization": f"Bearer {WRONG_KEY}"}}, "invalid_api_key"),
        (f"/v1/{SECRET}?input={SECRET}", {}, "not_found"),
        ("/v2/models/embedded/generate", {"json": {"text_input": SECRET, "voice": SECRET}}, "voice_not_found"),
        ("/v1/text/normalize", {"json": {"input": SECRET, SECRET: 1}}, "unknown_parameter"),
    ]


def test_nothing_that_a_client_says_is_in_the_log(watched: Watched) -> None:
    for number, (path, asked, outcome) in enumerate(_refusals()):
        headers = {"X-Request-Id": f"refused-{number}", **asked.pop("headers", {})}
        answer = watched.http.post(path, headers=headers, **asked)
        assert answer.status_code >= 400 and answer.headers["x-request-id"] == f"refused-{number}"
        assert watched.line(f"refused-{number}")["outcome"] == outcome, answer.text
    watched.http.post(SPEECH, json={"input": f"The {SECRET} plays."}, headers={"X-Request-Id": "spoken"})
    watched.http.get("/v1/models", params={"key": watched.key, "text": SECRET}, headers={"X-Request-Id": "query"})
    assert watched.line("spoken")["outcome"] == watched.line("query")["outcome"] == "ok"
    for hidden in (SECRET, watched.key, WRONG_KEY):
        assert hidden not in watched.log.lower()


def test_lines_of_bentoml_are_of_the_same_form_and_come_once(watched: Watched) -> None:
    with socket.create_connection((watched.server.host, watched.server.port)) as connection:
        connection.sendall(b"this is not HTTP\r\n\r\n")
        connection.recv(1024)
    warned = _eventually(lambda: [line for line in watched.lines() if line["logger"] == "uvicorn.error"])
    assert len(warned) == 1
    started = [line for line in watched.lines() if "initialized" in line["message"]]
    assert {line["process"] for line in started} == {"cosyserve", "speech_engine", "prompt_encoder"}
    assert len(started) == 3 and all({"time", "level", "process", "logger"} <= set(line) for line in watched.lines())


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/metrics", "/v1/models", "/nowhere", "/ui/", "/v2/health/live", "/docs"]
)
@pytest.mark.parametrize("keyed", [True, False])
def test_every_response_has_the_request_id(watched: Watched, path: str, keyed: bool) -> None:
    given = {"X-Request-Id": "mine", **({} if keyed else {"Authorization": ""})}
    assert watched.http.get(path, headers=given).headers.get_list("x-request-id") == ["mine"]


@pytest.mark.parametrize("given", ["", "a" * 129, "two words", 'quo"te', "<b>", "naïve"])
def test_an_id_that_would_not_be_safe_everywhere_is_replaced(watched: Watched, given: str) -> None:
    answer = watched.http.get("/v1/models", headers=[(b"X-Request-Id", given.encode())])
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_websockets_have_it_too(watched: Watched) -> None:
    url = watched.server.url.replace("http", "ws") + "/v1/audio/speech/stream"
    headers = {"Authorization": f"Bearer {watched.key}", "X-Request-Id": "session-1"}
    async with websockets.connect(url, additional_headers=headers) as session:
        assert session.response is not None and session.response.headers["X-Request-Id"] == "session-1"
        await session.send(json.dumps({"type": "input.text", "text": f"One. {SECRET}."}))
        await session.send(json.dumps({"type": "input.done"}))
        async for _ in session:
            pass
    line = watched.line("session-1")
    assert (line["outcome"], line["status"], line["key"]) == ("ok", 101, "ada") and line["audio_s"] > 0.5
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(url, additional_headers={"X-Request-Id": "session-2"})
    assert refused.value.response.headers["X-Request-Id"] == "session-2"
    assert watched.line("session-2")["outcome"] == "missing_api_key"
    assert SECRET not in watched.log


@pytest.mark.parametrize("key", [True, False])
async def test_grpc_calls_have_it_in_their_metadata(watched: Watched, key: bool) -> None:
    trace, trace_id, parent = _traceparent()
    request_id = f"call-{key}"
    metadata = [("x-request-id", request_id), ("traceparent", trace)]
    if key:
        metadata.append(("authorization", f"Bearer {watched.key}"))
    async with grpc.aio.insecure_channel(watched.grpc_address) as channel:
        data = message("ModelMetadataRequest")(name="embedded").SerializeToString()
        call = channel.unary_unary(f"/{SERVICE}/ModelMetadata")(data, timeout=30, metadata=metadata)
        assert dict(await call.initial_metadata())["x-request-id"] == request_id
        assert (await call.code()) is (grpc.StatusCode.OK if key else grpc.StatusCode.UNAUTHENTICATED)
    line = watched.line(request_id)
    assert line["outcome"] == ("ok" if key else "missing_api_key") and line.get("key") == ("ada" if key else None)
    (root,) = watched.collector.trace(trace_id, len).values()
    assert root.parent_id == parent
