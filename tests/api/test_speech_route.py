"""`POST /v1/audio/speech`: every field reaches the engine or is refused, and every answer says what it is."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import soundfile

from api.app import create_app
from runners.request import Sampling
from tests.api.live_server import Endless
from tests.api.oip_backend import HOP, HOPS, RATE, FakeBackend, all_samples
from tests.service.conftest import recording

SPEECH = "/v1/audio/speech"
LONG_ENOUGH = base64.b64decode(recording(1.0).partition(",")[2])


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
async def http(backend: FakeBackend) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(backend)), base_url="http://server"
    ) as client:
        yield client


def _body(**fields: Any) -> dict[str, Any]:
    return {"input": "One. / Two.", "seed": 5, "stream": False, **fields}


def _events(answer: httpx.Response) -> list[dict]:
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line]


async def test_what_the_engine_is_asked_for(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    fields = {
        "voice": {"id": "other"},
        "speed": 1.5,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "max_new_tokens": 100,
        "task_type": "sft",
        "language": "en",
        "text_normalization": "off",
        "normalization_options": {"url": "domain", "emoji": "name"},
        "pronunciation": [{"text": "One", "replace": "won"}],
        "timeout_s": 30,
        "model": "cosyvoice2",
    }
    assert (await http.post(SPEECH, json=_body(**fields))).status_code == 200
    (request,) = backend.requests
    assert (request.voice, request.speed, request.seed, request.stream) == ("other", 1.5, 5, False)
    assert request.sampling == Sampling(0.7, 0.9, 40, 100)
    options = backend.frontend.options
    assert (options.language, options.normalization, options.url, options.emoji) == ("en", "off", "domain", "name")
    assert [(entry.text, entry.replace) for entry in options.pronunciations] == [("One", "won")]


async def test_a_buffered_answer_says_what_it_took(http: httpx.AsyncClient) -> None:
    answer = await http.post(SPEECH, json=_body(volume=25, sample_rate=16_000))
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert (len(samples), rate) == (HOP * HOPS * 16_000 // RATE, 16_000)
    headers = answer.headers
    assert (headers["x-sample-rate"], headers["x-audio-duration-ms"], headers["x-seed"]) == ("16000", "60", "5")
    assert (headers["x-usage-input-characters"], headers["x-usage-output-tokens"]) == ("11", "2")
    assert (headers["x-finish-reason"], headers["x-model-id"]) == ("stop", "tiny")
    assert 0 <= int(headers["x-ttfa-ms"]) < 1000
    assert [part.partition(";")[0] for part in headers["server-timing"].split(", ")] == [
        "text",
        "voice",
        "ttfa",
        "speech",
        "encode",
    ]


async def test_times_of_segments_come_buffered_in_json(http: httpx.AsyncClient) -> None:
    answer = await http.post(SPEECH, json=_body(timestamp_granularities=["segment"], response_format="pcm"))
    told = answer.json()
    assert len(base64.b64decode(told["audio"])) == 2 * HOP * HOPS
    assert (told["format"], told["sample_rate"], told["duration_s"]) == ("pcm", RATE, 0.06)
    assert told["segments"] == [
        {"index": 0, "text": "One.", "start_s": 0.0, "end_s": 0.03},
        {"index": 1, "text": "Two.", "start_s": 0.03, "end_s": 0.06},
    ]
    assert told["usage"] == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


async def test_times_of_segments_come_with_the_last_event(http: httpx.AsyncClient) -> None:
    body = _body(stream=True, stream_format="sse", response_format="pcm")
    *deltas, done = _events(await http.post(SPEECH, json={**body, "timestamp_granularities": ["segment"]}))
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert audio == (all_samples(5) * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()
    assert [segment["end_s"] for segment in done["segments"]] == [0.03, 0.06]
    assert "segments" not in _events(await http.post(SPEECH, json=body))[-1]


@pytest.mark.parametrize("audio_format", ["wav", "pcm", "mp3", "opus", "flac", "aac"])
async def test_every_format_streams(http: httpx.AsyncClient, backend: FakeBackend, audio_format: str) -> None:
    backend.hops = 50
    answer = await http.post(SPEECH, json=_body(stream=True, response_format=audio_format))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("audio/")
    assert len(answer.content) > 1000
    assert int(answer.headers["x-ttfa-ms"]) >= 0


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"volume": 101}, 400, "invalid_value", "volume"),
        ({"pitch": 0.4}, 400, "invalid_value", "pitch"),
        ({"sample_rate": 7999}, 400, "invalid_value", "sample_rate"),
        ({"sample_rate": 16000.5}, 422, "invalid_type", "sample_rate"),
        ({"temperature": 0}, 400, "invalid_value", "temperature"),
        ({"top_p": 1.1}, 400, "invalid_value", "top_p"),
        ({"top_k": 0}, 400, "invalid_value", "top_k"),
        ({"max_new_tokens": 1}, 400, "invalid_value", "max_new_tokens"),
        ({"timeout_s": 0}, 400, "invalid_value", "timeout_s"),
        ({"task_type": "sing"}, 400, "invalid_value", "task_type"),
        ({"task_type": "zero_shot"}, 400, "unsupported_parameter", "task_type"),
        ({"task_type": "instruct"}, 400, "invalid_value", "task_type"),
        ({"task_type": "sft", "ref_audio": recording(1.0)}, 400, "invalid_value", "task_type"),
        ({"language": "fr"}, 400, "unsupported_language", "language"),
        ({"language": "xx"}, 400, "unsupported_language", "language"),
        ({"input_type": "html"}, 400, "invalid_value", "input_type"),
        ({"text_normalization": "perhaps"}, 400, "invalid_value", "text_normalization"),
        ({"normalization_options": {"url": "sing"}}, 400, "invalid_value", "normalization_options"),
        ({"normalization_options": {"colour": "red"}}, 400, "unknown_parameter", "normalization_options.colour"),
        ({"pronunciation": [{"text": "a"}]}, 400, "invalid_pronunciation", "pronunciation"),
        ({"pronunciation": [{"text": "a", "rhyme": "b"}]}, 400, "unknown_parameter", "pronunciation.0.rhyme"),
        ({"pronunciation_dictionary_ids": ["x"]}, 400, "unsupported_parameter", "pronunciation_dictionary_ids"),
        ({"timestamp_granularities": ["word"]}, 400, "unsupported_parameter", "timestamp_granularities"),
        ({"timestamp_granularities": ["line"]}, 400, "invalid_value", "timestamp_granularities"),
        ({"timestamp_granularities": ["segment"], "stream": True}, 400, "invalid_value", "timestamp_granularities"),
        ({"stream_format": "sse"}, 400, "invalid_value", "stream"),
        ({"references": [{"audio_path": "x"}], "ref_audio": "y"}, 400, "invalid_value", "ref_audio"),
        ({"ref_audio": "https://example.com/a.wav"}, 400, "ref_audio_url_not_allowed", "ref_audio"),
        ({"voice": {"name": "cosy"}}, 422, "invalid_type", "voice"),
        ({"voice": "nobody"}, 404, "voice_not_found", "voice"),
        ({"instructions": "Whisper."}, 400, "unsupported_parameter", "instructions"),
        ({"watermark": True}, 400, "unsupported_parameter", "watermark"),
        ({"colour": "red"}, 400, "unknown_parameter", "colour"),
    ],
)
async def test_what_cannot_be_honoured_is_refused(
    http: httpx.AsyncClient, backend: FakeBackend, fields: dict, status: int, code: str, param: str
) -> None:
    answer = await http.post(SPEECH, json=_body(**fields))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert not backend.requests


@pytest.mark.parametrize("how", ["form", "data URL", "references"])
async def test_a_reference_comes_in_three_ways(http: httpx.AsyncClient, backend: FakeBackend, how: str) -> None:
    url = recording(1.0)
    if how == "form":
        form = {"input": "One.", "ref_text": "Two.", "seed": "5", "stream": "false", "voice": "inline"}
        answer = await http.post(SPEECH, data=form, files={"ref_audio": ("a.wav", LONG_ENOUGH)})
    elif how == "references":
        answer = await http.post(SPEECH, json=_body(references=[{"audio_path": url, "text": "Two."}]))
    else:
        answer = await http.post(SPEECH, json=_body(ref_audio=url, ref_text="Two."))
    assert answer.status_code == 200, answer.text
    (request,) = backend.requests
    assert (request.conditioning is not None, request.prompt_text, request.seed) == (True, "Two.", 5)
    ((samples, rate),) = backend.encoded
    assert (len(samples), rate) == (24_000, 24_000)


@pytest.mark.parametrize(("name", "value"), [("speed", "fast"), ("stream", "no"), ("seed", "[")])
async def test_a_form_holds_numbers_as_json(http: httpx.AsyncClient, name: str, value: str) -> None:
    answer = await http.post(SPEECH, data={"input": "One.", name: value}, files={"ref_audio": ("a.wav", LONG_ENOUGH)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_type")


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_a_deadline_before_audio_is_504_and_after_it_no_end(stream_format: str) -> None:
    class Silent(FakeBackend):
        async def stream(self, request):
            async for _ in FakeBackend(hold=True, hops=2).stream(request):
                continue
            yield

    for backend, status in ((Silent(), 504), (FakeBackend(hold=True), 200)):
        transport = httpx.ASGITransport(create_app(backend), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            answer = await http.post(SPEECH, json=_body(stream=True, stream_format=stream_format, timeout_s=0.5))
        assert answer.status_code == status
        if status == 504:
            assert answer.json()["error"]["code"] == "deadline_exceeded"
        elif stream_format == "sse":
            assert _events(answer)[-1]["error"]["code"] == "deadline_exceeded"
            assert _events(answer)[-1]["type"] == "speech.audio.error"


async def test_models_say_what_they_take(http: httpx.AsyncClient) -> None:
    model = (await http.get("/v1/models/tiny")).json()
    assert {"wav", "mp3", "opus"} <= set(model["response_formats"])
    assert model["limits"]["speed"] == [0.25, 4.0]
    assert model["revision"] is None


async def test_a_form_that_is_not_filled_in_is_a_plain_request(http: httpx.AsyncClient, backend: FakeBackend) -> None:
    answer = await http.post(SPEECH, json=_body(instructions="", ref_text="", voice=""))
    assert answer.status_code == 200, answer.text
    assert (backend.requests[0].instructions, backend.requests[0].prompt_text) == (None, None)


async def test_a_model_has_the_same_names_wherever_it_is_asked_for(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "narrator")
    listed = (await http.get("/v1/models")).json()["models"]
    assert listed == ["narrator", "cosyvoice2"]
    for name in (*listed, "tiny", "cosyvoice-2"):
        assert (await http.get(f"/v1/models/{name}")).status_code == 200, name
        assert (await http.post(SPEECH, json=_body(model=name))).status_code == 200, name
    for answer in (await http.get("/v1/models/other"), await http.post(SPEECH, json=_body(model="other"))):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_whole_answer_is_bounded() -> None:
    backend = Endless()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server") as http:
        answer = await http.post(SPEECH, json=_body(response_format="pcm"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "answer_too_long")
    assert "ask for a stream" in answer.json()["error"]["message"]
    assert backend.running == 0
