"""The REST routes over a backend without runners: answers, refusals, readiness, failures, and clients that leave."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from prometheus_client import REGISTRY

from api.app import create_app
from audio.encode import to_pcm16
from runners.request import RequestError
from tests.api.oip_backend import FakeBackend, all_samples

TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Hello."]}
SEED = {"name": "seed", "datatype": "INT64", "shape": [1], "data": [5]}
TONE = np.sin(np.arange(16_000) * 0.1).astype(np.float32) / 2
INFER = "/v2/models/tiny/infer"


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
async def http(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    async with _client(backend) as client:
        yield client


def _client(backend: FakeBackend) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server")


def _scalar(name: str, datatype: str, value: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [1], "data": [value]}


async def _infer(http: httpx.AsyncClient, *inputs: dict[str, Any], path: str = INFER, **fields: Any) -> httpx.Response:
    return await http.post(path, json={"inputs": list(inputs), **fields})


def _refused(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].startswith(code + ": ")
    assert len(answer.json()["error"]) > len(code) + 12


@pytest.mark.parametrize(
    ("audio_format", "datatype", "expected"),
    [
        ("float32", "FP32", all_samples(5)),
        ("int16", "INT16", to_pcm16(all_samples(5))),
        ("pcm", "UINT8", to_pcm16(all_samples(5)).view(np.uint8)),
    ],
)
async def test_samples_as_numbers(
    http: httpx.AsyncClient, audio_format: str, datatype: str, expected: np.ndarray
) -> None:
    answer = (await _infer(http, TEXT, SEED, _scalar("format", "BYTES", audio_format), id="a1")).json()
    audio, rate = answer["outputs"]
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("tiny", "1", "a1")
    assert (audio["name"], audio["datatype"], audio["shape"]) == ("audio", datatype, [len(expected)])
    np.testing.assert_array_equal(np.array(audio["data"], expected.dtype), expected)
    assert (rate["name"], rate["datatype"], rate["shape"], rate["data"]) == ("sample_rate", "INT32", [1], [24_000])


@pytest.mark.parametrize("audio_format", ["wav", "flac"])
async def test_files_as_base64_text(http: httpx.AsyncClient, audio_format: str) -> None:
    asked = [{"name": "audio"}]
    answer = await _infer(http, TEXT, SEED, _scalar("format", "BYTES", audio_format + "_base64"), outputs=asked)
    (audio,) = answer.json()["outputs"]
    assert (audio["datatype"], audio["shape"]) == ("BYTES", [1])
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(audio["data"][0])), dtype="int16")
    assert rate == 24_000
    np.testing.assert_array_equal(samples, to_pcm16(all_samples(5)))


async def test_an_id_is_made_where_none_was_sent(http: httpx.AsyncClient) -> None:
    ids = {(await _infer(http, TEXT)).json()["id"] for _ in range(2)}
    assert len(ids) == 2
    assert all(len(made) > 10 for made in ids)


async def test_every_field_reaches_the_engine(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    fields = [TEXT, SEED, _scalar("voice", "BYTES", "other"), _scalar("speed", "FP32", 0.7)]
    assert (await _infer(http, *fields)).status_code == 200
    (request,) = backend.requests
    assert (request.segments, request.voice, request.speed, request.seed) == (("Hello.",), "other", 0.7, 5)
    assert not request.stream


async def test_a_speed_in_binary_fp32_is_the_decimal_that_was_meant(backend: FakeBackend) -> None:
    raw = np.float32(0.7).tobytes()
    speed = {"name": "speed", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
    head = json.dumps({"inputs": [TEXT, speed]}).encode()
    async with _client(backend) as http:
        headers = {"Inference-Header-Content-Length": str(len(head))}
        assert (await http.post(INFER, content=head + raw, headers=headers)).status_code == 200
    assert backend.requests[0].speed == 0.7


@pytest.mark.parametrize("rate", [16_000, 48_000])
async def test_a_reference_as_samples(http: httpx.AsyncClient, backend: FakeBackend, rate: int) -> None:
    tone = np.tile(TONE, 3)
    reference = {"name": "ref_audio", "datatype": "FP32", "shape": [1, len(tone)], "data": [tone.tolist()]}
    extra = [] if rate == 16_000 else [_scalar("ref_sample_rate", "INT32", rate)]
    answer = await _infer(http, TEXT, reference, _scalar("ref_text", "BYTES", "What it says."), *extra)
    assert answer.status_code == 200, answer.text
    ((samples, encoded_rate),) = backend.encoded
    np.testing.assert_array_equal(samples, tone)
    assert encoded_rate == rate
    assert backend.requests[0].prompt_text == "What it says."
    assert backend.requests[0].voice is None


@pytest.mark.parametrize("form", ["UINT8", "BYTES", "data URL"])
async def test_a_reference_as_a_sound_file(http: httpx.AsyncClient, backend: FakeBackend, form: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, TONE, 16_000, format="WAV", subtype="FLOAT")
    data = file.getvalue()
    if form == "UINT8":
        tensor = {"name": "ref_audio", "datatype": "UINT8", "shape": [len(data)], "data": list(data)}
    else:
        text = base64.b64encode(data).decode()
        tensor = _scalar("ref_audio", "BYTES", f"data:audio/wav;base64,{text}" if form == "data URL" else text)
    assert (await _infer(http, TEXT, tensor)).status_code == 200
    np.testing.assert_array_equal(backend.encoded[0][0], TONE)


async def test_the_models_of_upstream(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    wav = np.concatenate([TONE, np.zeros(16_000, np.float32)])  # padded, as upstream's client sends it
    inputs = [
        {"name": "reference_wav", "datatype": "FP32", "shape": [1, len(wav)], "data": [wav.tolist()]},
        {"name": "reference_wav_len", "datatype": "INT32", "shape": [1, 1], "data": [[len(TONE)]]},
        {"name": "reference_text", "datatype": "BYTES", "shape": [1, 1], "data": ["What it says."]},
        {"name": "target_text", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello."]},
    ]
    answer = await _infer(http, *inputs, path="/v2/models/cosyvoice2/infer")
    assert answer.status_code == 200, answer.text
    (waveform,) = answer.json()["outputs"]
    expected = all_samples(backend.requests[0].seed)
    assert (waveform["name"], waveform["datatype"], waveform["shape"]) == ("waveform", "FP32", [1, len(expected)])
    np.testing.assert_array_equal(np.array(waveform["data"], np.float32), expected)
    np.testing.assert_array_equal(backend.encoded[0][0], TONE)
    assert backend.encoded[0][1] == 16_000
    assert backend.requests[0].prompt_text == "What it says."


async def test_upstreams_model_speaks_with_the_default_voice_without_a_reference(
    http: httpx.AsyncClient, backend: FakeBackend
) -> None:
    target = {"name": "target_text", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello."]}
    assert (await _infer(http, target, path="/v2/models/cosyvoice2/infer")).status_code == 200
    assert backend.requests[0].voice == "cosy"
    _refused(await _infer(http, target, path="/v2/models/cosyvoice3/infer"), 404, "model_not_found")


async def test_a_service_named_as_upstreams_model_is_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "cosyvoice3")
    async with _client(FakeBackend(version=3)) as http:
        assert (await http.get("/v2/models")).json() == {"models": ["cosyvoice3"]}
        for text in ("text", "target_text"):
            tensor = {**TEXT, "name": text}
            assert (await _infer(http, tensor, path="/v2/models/cosyvoice3/infer")).status_code == 200
        _refused(await _infer(http, TEXT), 404, "model_not_found")


WRONG: list[tuple[list[dict[str, Any]], str]] = [
    ([], "missing_parameter"),
    ([SEED], "missing_tensor"),
    ([TEXT, TEXT], "invalid_value"),
    ([TEXT, _scalar("pitch", "FP32", 1.0)], "unknown_tensor"),
    ([{**TEXT, "datatype": "FP32", "data": [1.0]}], "invalid_tensor"),
    ([{**TEXT, "shape": [2], "data": ["One.", "Two."]}], "invalid_tensor"),
    ([{**TEXT, "shape": [0], "data": []}], "invalid_tensor"),
    ([{**TEXT, "shape": [2]}], "invalid_tensor"),
    ([{**TEXT, "data": [""]}], "input_empty"),
    ([{**TEXT, "data": ["\ud800"]}], "input_not_utf8"),
    ([{**TEXT, "parameters": {"shared_memory_region": "r"}}], "unsupported_parameter"),
    ([{**TEXT, "parameters": {"content_type": "str"}}], "unsupported_parameter"),
    ([{**TEXT, "dtype": "BYTES"}], "unknown_parameter"),
    ([TEXT, _scalar("format", "BYTES", "wma")], "unsupported_format"),
    ([TEXT, _scalar("speed", "FP32", 9.0)], "invalid_value"),
    ([TEXT, _scalar("speed", "FP32", float("nan"))], "invalid_value"),
    ([TEXT, _scalar("seed", "INT64", -1)], "invalid_value"),
    ([TEXT, _scalar("ref_text", "BYTES", "Hi.")], "invalid_value"),
    ([TEXT, _scalar("instructions", "BYTES", "x" * 513)], "invalid_value"),
    ([TEXT, _scalar("ref_sample_rate", "INT32", 24_000)], "invalid_value"),
    ([TEXT, _scalar("ref_audio", "BYTES", "http://host/a.wav")], "ref_audio_url_not_allowed"),
    ([TEXT, _scalar("ref_audio", "BYTES", "????")], "ref_audio_invalid"),
    ([TEXT, _scalar("ref_audio", "FP32", 0.5)], "ref_audio_too_short"),
    ([TEXT, {"name": "ref_audio", "datatype": "FP32", "shape": [2, 8], "data": [0.5] * 16}], "invalid_tensor"),
    ([TEXT, {"name": "ref_audio", "datatype": "UINT8", "shape": [3], "data": [1, 2, 3]}], "ref_audio_invalid"),
]


@pytest.mark.parametrize(("inputs", "code"), WRONG)
async def test_wrong_inputs(http: httpx.AsyncClient, backend: FakeBackend, inputs: list[dict], code: str) -> None:
    body = json.dumps({"inputs": inputs})
    _refused(await http.post(INFER, content=body), 400, code)
    assert backend.requests == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
async def test_reference_samples_that_are_no_sound(http: httpx.AsyncClient, bad: float) -> None:
    wav = TONE.copy()
    wav[100] = bad
    reference = {"name": "ref_audio", "datatype": "FP32", "shape": [len(wav)], "data": wav.tolist()}
    body = json.dumps({"inputs": [TEXT, reference]})
    _refused(await http.post(INFER, content=body), 400, "ref_audio_invalid")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"parameters": {"temperature": 1}}, "unknown_parameter"),
        ({"parameters": {"binary_data_output": "yes"}}, "invalid_value"),
        ({"parameters": []}, "invalid_type"),
        ({"outputs": [{"name": "waveform"}]}, "unknown_tensor"),
        ({"outputs": [{"name": "audio"}, {"name": "audio"}]}, "invalid_value"),
        ({"outputs": [{"name": "audio", "parameters": {"classification": 3}}]}, "unsupported_parameter"),
        ({"outputs": [{"name": "audio", "parameters": {"binary_data": 1}}]}, "invalid_value"),
        ({"outputs": "audio"}, "invalid_type"),
        ({"outputs": [{"name": "audio", "data": []}]}, "unknown_parameter"),
        ({"outputs": [{"name": f"audio{number}"} for number in range(33)]}, "invalid_value"),
        ({"output": [{"name": "audio"}]}, "unknown_parameter"),
        ({"id": 7}, "invalid_value"),
        ({"id": "7" * 129}, "invalid_value"),
        ({"inputs": [TEXT] * 33}, "invalid_value"),
    ],
)
async def test_wrong_requests(http: httpx.AsyncClient, fields: dict, code: str) -> None:
    _refused(await http.post(INFER, json={"inputs": [TEXT], **fields}), 400, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"[" * 100_000, b'{"inputs": [' + b"[" * 5000, b"\xff"])
@pytest.mark.parametrize("path", [INFER, "/v1/models/tiny:predict", "/v2/models/tiny/generate_stream"])
async def test_bodies_that_are_no_object(http: httpx.AsyncClient, path: str, body: bytes) -> None:
    answer = await http.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].split(":")[0] in ("invalid_json", "invalid_type", "input_not_utf8")


async def test_a_body_that_is_too_large_or_packed(http: httpx.AsyncClient) -> None:
    _refused(await http.post(INFER, content=b" " * (16 * 2**20 + 1)), 413, "payload_too_large")
    _refused(await http.post(INFER, content=b"{}", headers={"Content-Encoding": "gzip"}), 415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/v2/models/none/infer", "model_not_found"),
        ("POST", "/v2/models/tiny/versions/2/infer", "model_not_found"),
        ("GET", "/v2/models/none", "model_not_found"),
        ("GET", "/v2/models/none/ready", "model_not_found"),
        ("GET", "/v2/models/tiny/versions/2", "model_not_found"),
        ("POST", "/v2/repository/models/none/load", "model_not_found"),
        ("POST", "/v2/repository/models/none/unload", "model_not_found"),
        ("POST", "/v1/models/none:predict", "model_not_found"),
        ("POST", "/v2/models/none/generate", "model_not_found"),
        ("GET", "/v2/models/tiny/infer", "not_found"),
        ("GET", "/v2/repository/index", "not_found"),
    ],
)
async def test_models_and_routes_that_are_not_there(http: httpx.AsyncClient, method: str, path: str, code: str) -> None:
    bodies = {"infer": {"inputs": [TEXT]}, "predict": {"instances": [{"text": "Hi."}]}, "generate": {"text": "Hi."}}
    body = next((value for name, value in bodies.items() if path.endswith(name)), None)
    _refused(await http.request(method, path, json=body if method == "POST" else None), 404, code)


async def test_loading_is_idempotent_and_unloading_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v2/repository/models/tiny/load")
    assert (answer.status_code, answer.json()) == (200, {"name": "tiny", "load": True})
    body = {"parameters": {"config": "{}"}}
    _refused(await http.post("/v2/repository/models/tiny/load", json=body), 400, "unsupported_parameter")
    _refused(await http.post("/v2/repository/models/tiny/unload"), 501, "unload_unsupported")
    assert (await _infer(http, TEXT)).status_code == 200
    _refused(await http.post("/v1/models/tiny:explain", json={}), 501, "explain_unsupported")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/models/a/b:predict", 404, "not_found"),
        ("GET", "/v1/models/tiny:predict", 404, "model_not_found"),
        ("DELETE", "/v1/models/tiny:predict", 404, "not_found"),
        ("OPTIONS", "/v1/models/tiny:predict", 405, "method_not_allowed"),
        ("OPTIONS", "/v2/models", 405, "method_not_allowed"),
        ("TRACE", "/v2", 405, "method_not_allowed"),
    ],
)
async def test_a_path_or_method_that_is_not_there_is_refused_in_the_protocols_shape(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    _refused(await http.request(method, path), status, code)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/models/none", "model_not_found"),
        ("GET", "/v1/models/ft:none", "model_not_found"),
        ("POST", "/v1/models/tiny:wings", "not_found"),
        ("OPTIONS", "/v1/audio/speech", "method_not_allowed"),
    ],
)
async def test_the_speech_api_keeps_its_own_shape(http: httpx.AsyncClient, method: str, path: str, code: str) -> None:
    error = (await http.request(method, path)).json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)


READY = ["/v2/health/ready", "/v2/models/tiny/ready", "/v1/models/tiny"]


async def test_readiness_follows_the_backend_and_liveness_does_not(
    http: httpx.AsyncClient, backend: FakeBackend
) -> None:
    for ready in (True, False, True):
        backend.ready = ready
        assert [(await http.get(path)).status_code for path in READY] == [200 if ready else 503] * 3
        assert (await http.get("/v2/health/live")).json() == {"live": True}
        assert (await http.get("/")).json() == {"status": "alive"}


async def test_before_the_model_is_loaded(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    backend.loaded = backend.ready = False
    assert (await http.get("/v2/health/live")).status_code == 200
    for path in ("/v2/models", "/v2/models/tiny", "/v2/health/ready"):
        answer = await http.get(path)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert isinstance(answer.json()["error"], str)
    _refused(await _infer(http, TEXT), 503, "loading")


async def test_a_browser_gets_its_page_and_no_liveness(http: httpx.AsyncClient) -> None:
    answer = await http.get("/", headers={"Accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["location"]) == (307, "ui/")


async def test_metadata_describes_both_models(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v2")).json()["name"] == "cosyserve"
    own = (await http.get("/v2/models/tiny")).json()
    assert (own["name"], own["versions"], own["platform"]) == ("tiny", ["1"], "cosyserve")
    assert {"name": "text", "datatype": "BYTES", "shape": [1]} in own["inputs"]
    assert {"name": "audio", "datatype": "UINT8", "shape": [-1]} in own["outputs"]
    upstream = (await http.get("/v2/models/cosyvoice2/versions/1")).json()
    assert [tensor["name"] for tensor in upstream["inputs"]] == [
        "reference_wav",
        "reference_wav_len",
        "reference_text",
        "target_text",
    ]
    config = (await http.get("/v2/models/cosyvoice2/config")).json()
    assert config["output"] == [{"name": "waveform", "data_type": "TYPE_FP32", "dims": [1, -1]}]
    assert config["model_transaction_policy"] == {"decoupled": True}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestError("overloaded", "Too many requests.", 429), 429, "overloaded"),
        (RequestError("engine_unavailable", "The engine is away.", 503), 503, "engine_unavailable"),
        (RuntimeError("a secret"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("path", ["infer", "generate_stream"])
async def test_failures_before_any_audio_have_a_status(path: str, error: Exception, status: int, code: str) -> None:
    backend = FakeBackend(fail_after=0, error=error)
    async with _client(backend) as http:
        answer = await http.post(
            f"/v2/models/tiny/{path}", json={"inputs": [TEXT]} if path == "infer" else {"text": "Hi."}
        )
    _refused(answer, status, code)
    assert "secret" not in answer.text
    assert backend.running == 0


async def test_audio_that_is_not_finite_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.api.oip_backend.made", lambda seed, hop: np.full(8, np.nan, np.float32))
    async with _client(FakeBackend()) as http:
        for audio_format in ("float32", "int16", "wav"):
            _refused(await _infer(http, TEXT, _scalar("format", "BYTES", audio_format)), 500, "nonfinite_audio")


@pytest.mark.parametrize(("audio_format", "limit"), [("float32", 1440), ("int16", 1440), ("pcm", 2880)])
async def test_lists_that_would_be_too_long_are_refused_and_the_work_stops(
    monkeypatch: pytest.MonkeyPatch, audio_format: str, limit: int
) -> None:
    backend = FakeBackend()
    tensor = _scalar("format", "BYTES", audio_format)
    async with _client(backend) as http:
        monkeypatch.setattr("api.oip.inference.MAX_LISTED_ELEMENTS", limit)
        assert (await _infer(http, TEXT, tensor)).status_code == 200
        monkeypatch.setattr("api.oip.inference.MAX_LISTED_ELEMENTS", limit - 2)
        _refused(await _infer(http, TEXT, tensor), 400, "answer_too_long")
        assert backend.running == 0
        binary = await _infer(http, TEXT, tensor, parameters={"binary_data_output": True})
        assert binary.status_code == 200
        assert (await _infer(http, TEXT, _scalar("format", "BYTES", "wav_base64"))).status_code == 200


def _events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]


@pytest.mark.parametrize("audio_format", ["wav", "pcm", "flac"])
async def test_generate_stream_sends_an_event_per_hop_and_says_when_it_is_complete(
    http: httpx.AsyncClient, backend: FakeBackend, audio_format: str
) -> None:
    body = {"text_input": "Hello.", "parameters": {"seed": 5, "format": audio_format}}
    answer = await http.post("/v2/models/tiny/generate_stream", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *hops, last = _events(answer.text)
    assert (last["final"], last["finish_reason"], last["audio"]) == (True, "stop", "")
    data = b"".join(base64.b64decode(hop["audio"]) for hop in hops)
    if audio_format == "pcm":
        assert len(hops) == 3
        assert data == to_pcm16(all_samples(5)).tobytes()
    elif audio_format == "wav":
        assert data[44:] == to_pcm16(all_samples(5)).tobytes()
    else:
        assert data.startswith(b"fLaC")
    assert {(hop["sample_rate"], hop["format"], hop["model_name"]) for hop in hops} == {(24_000, audio_format, "tiny")}
    assert backend.requests[0].stream


async def test_a_stream_that_fails_ends_in_an_error() -> None:
    backend = FakeBackend(fail_after=2)
    async with _client(backend) as http:
        answer = await http.post("/v2/models/tiny/generate_stream", json={"text": "Hi.", "format": "pcm"})
    *hops, last = _events(answer.text)
    assert len(hops) == 2
    assert last == {"error": "engine_error: The engine stopped."}
    assert "final" not in answer.text
    assert backend.running == 0


async def test_generate_answers_with_a_whole_file(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/v2/models/tiny/generate", json={"text": "Hi.", "seed": 5})).json()
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(answer["audio"])), dtype="int16")
    np.testing.assert_array_equal(samples, to_pcm16(all_samples(5)))
    assert (rate, answer["sample_rate"], answer["format"], answer["seed"]) == (24_000, 24_000, "wav", 5)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_parameter"),
        ({"text": "Hi.", "text_input": "Hi."}, 400, "invalid_value"),
        ({"text": "Hi.", "seed": 1, "parameters": {"seed": 1}}, 400, "invalid_value"),
        ({"text": "Hi.", "parameters": 7}, 400, "invalid_type"),
        ({"text": "Hi.", "parameters": {"temperature": 0}}, 400, "unsupported_parameter"),
        ({"text": "Hi.", "parameters": {"wings": 2}}, 400, "unknown_parameter"),
        ({"text": 7}, 422, "invalid_type"),
        ({"text": "Hi.", "format": "float32"}, 400, "unsupported_format"),
        ({"text": "Hi.", "voice": "nobody"}, 404, "voice_not_found"),
    ],
)
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
async def test_wrong_generate_requests(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    _refused(await http.post(f"/v2/models/tiny/{path}", json=body), status, code)


async def test_a_key_that_is_half_a_character_is_refused(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v2/models/tiny/generate", content=b'{"text": "Hi.", "\\ud800": 1}')
    _refused(answer, 400, "input_not_utf8")


async def test_what_is_wrong_with_an_instance_says_which(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/models/tiny:predict", json={"instances": [{"text": "Hi."}, {"text": 7}]})
    assert answer.json()["error"].startswith("invalid_type: `instances.1.text`: ")


INSTANCE = {"text": "Hello.", "ref_audio": "?" * 100_000}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/audio/speech", {"input": "Hello.", "ref_audio": "?" * 100_000}),
        (INFER, {"inputs": [TEXT, _scalar("ref_audio", "BYTES", "?" * 100_000)]}),
        ("/v1/models/tiny:predict", {"instances": [INSTANCE]}),
        ("/v2/models/tiny/generate", INSTANCE),
        ("/v2/models/tiny/generate_stream", INSTANCE),
        ("/v2/repository/models/tiny/load", {"parameters": INSTANCE}),
    ],
)
async def test_large_bodies_are_not_read_by_the_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    content, readers, loads = json.dumps(body).encode(), [], json.loads

    def watched(*values: Any) -> Any:
        readers.append(threading.current_thread())
        return loads(*values)

    monkeypatch.setattr(json, "loads", watched)
    answer = await http.post(path, content=content)
    assert answer.status_code == 400  # it is no reference, or no configuration that a load call takes
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/models/tiny:predict", {"instances": [{"text": "Hi."}]}), ("/v2/models/tiny/generate", {"text": "Hi."})],
)
async def test_whole_answers_are_not_written_by_the_loop(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    content, writers, dumps = json.dumps(body).encode(), [], json.dumps

    def watched(values: Any, **options: Any) -> str:
        if "audio" in str(values):
            writers.append(threading.current_thread())
        return dumps(values, **options)

    monkeypatch.setattr(json, "dumps", watched)
    assert (await http.post(path, content=content)).status_code == 200
    assert len(writers) == 1
    assert writers[0] is not threading.current_thread()


async def test_predict_speaks_several_instances(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    instances = [{"text": "One.", "seed": 1}, {"text": "Two.", "seed": 2, "format": "pcm", "voice": "other"}]
    answer = (await http.post("/v1/models/tiny:predict", json={"instances": instances})).json()
    one, two = answer["predictions"]
    assert (one["format"], two["format"], one["sample_rate"]) == ("wav", "pcm", 24_000)
    assert base64.b64decode(one["audio"])[44:] == to_pcm16(all_samples(1)).tobytes()
    assert base64.b64decode(two["audio"]) == to_pcm16(all_samples(2)).tobytes()
    assert [request.voice for request in backend.requests] == ["cosy", "other"]


async def test_predict_is_one_request_to_the_engine_at_a_time_and_one_in_the_metrics() -> None:
    at_once = []

    class Counting(FakeBackend):
        async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
            async for frame in super().stream(request):
                at_once.append(self.running)
                await asyncio.sleep(0)
                yield frame

    before = {name: _metric(name) for name in ("requests_total", "rtf_count", "audio_seconds_total")}
    async with _client(Counting()) as http:
        body = {"instances": [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]}
        assert (await http.post("/v1/models/tiny:predict", json=body)).status_code == 200
    assert set(at_once) == {1}
    assert _metric("requests_total") - before["requests_total"] == 1
    assert _metric("rtf_count") - before["rtf_count"] == 1
    seconds = 3 * len(all_samples(1)) / 24_000
    assert _metric("audio_seconds_total") - before["audio_seconds_total"] == pytest.approx(seconds)


def _metric(name: str) -> float:
    labels = {"route": "oip", "mode": "preset", "outcome": "ok"} if name == "requests_total" else {"route": "oip"}
    return REGISTRY.get_sample_value(f"cosyserve_{name}", labels) or 0.0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_parameter"),
        ({"instances": [{"text": "Hi."}], "signature_name": "x"}, 400, "unknown_parameter"),
        ({"instances": [{"text": "Hi.", "temperature": 2}]}, 400, "unsupported_parameter"),
        ({"instances": [{"text": "Hi.", "format": "float32"}]}, 400, "unsupported_format"),
        ({"instances": []}, 400, "invalid_value"),
        ({"instances": [{"text": "Hi."}] * 9}, 400, "invalid_value"),
        ({"instances": ["Hi."]}, 422, "invalid_type"),
        ({"instances": {"text": "Hi."}}, 422, "invalid_type"),
        ({"instances": [{"text": "Hi.", "wings": 2}]}, 400, "unknown_parameter"),
        ({"instances": [{"text": "Hi."}, {"text": "Hi.", "voice": "nobody"}]}, 404, "voice_not_found"),
        ({"instances": [{"text": "Hi."}, {"text": " "}]}, 400, "input_empty"),
    ],
)
async def test_wrong_predict_requests(
    http: httpx.AsyncClient, backend: FakeBackend, body: dict[str, Any], status: int, code: str
) -> None:
    _refused(await http.post("/v1/models/tiny:predict", json=body), status, code)
    assert backend.running == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INFER, {"inputs": [TEXT]}),
        ("/v1/models/tiny:predict", {"instances": [{"text": "One."}, {"text": "Two."}]}),
        ("/v2/models/tiny/generate", {"text": "Hi."}),
        ("/v2/models/tiny/generate_stream", {"text": "Hi."}),
    ],
)
async def test_a_client_that_leaves_frees_its_slot(path: str, body: dict[str, Any]) -> None:
    backend = FakeBackend(hold=True)
    gone = asyncio.Event()
    received = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if received:
            return received.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(sent: Any) -> None:
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "http_version": "1.1",
        "scheme": "http",
    }
    call = asyncio.ensure_future(create_app(backend)(scope, receive, send))
    await asyncio.wait_for(_until(lambda: backend.running > 0), 10)
    assert not call.done()
    gone.set()
    await asyncio.wait_for(asyncio.gather(call, return_exceptions=True), 10)
    await asyncio.wait_for(_until(lambda: backend.running == 0), 10)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
