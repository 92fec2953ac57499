"""Speech from the real service through the unmodified OpenAI SDK and plain HTTP."""

from __future__ import annotations

import base64
import io
import json
import wave

import httpx
import numpy as np
import openai
import pytest
import soundfile

from audio.decode import decode_audio
from tests.service.conftest import recording

TEXT = "Good morning, how are you today?"


def _speak(http: httpx.Client, **body) -> httpx.Response:
    return http.post("/v1/audio/speech", json={"input": TEXT, **body})


def test_the_sdk_streams_speech_in_several_chunks(client: openai.OpenAI) -> None:
    text = "Good morning. " + " ".join([TEXT] * 4)
    with client.audio.speech.with_streaming_response.create(
        model="embedded", voice="cosy", input=text, response_format="pcm"
    ) as response:
        chunks = list(response.iter_bytes())
        rate = int(response.headers["X-Sample-Rate"])
    assert rate == 24_000
    assert len(chunks) > 1
    assert 3 < sum(map(len, chunks)) / 2 / rate < 25


def test_the_sdk_reads_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.audio.speech.create(model="embedded", voice="cosy", input=TEXT, response_format="wav")
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert rate == 24_000
    assert np.abs(samples).max() > 0.05


def test_the_sdk_reads_server_sent_events(client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="embedded", voice="cosy", input=TEXT, response_format="pcm", stream_format="sse"
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    assert [event["type"] for event in events[:-1]] == ["speech.audio.delta"] * (len(events) - 1)
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] > 10
    pcm = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert len(pcm) > 24_000


def test_a_buffered_wav_has_exact_sizes(http: httpx.Client) -> None:
    answer = _speak(http, stream=False)
    assert answer.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(answer.content)) as file:
        frames = file.getnframes()
        assert len(file.readframes(frames)) == 2 * frames
    assert int(answer.headers["x-audio-duration-ms"]) == round(frames / 24)


@pytest.mark.parametrize("stream", [True, False])
def test_every_format_holds_the_same_samples(http: httpx.Client, stream: bool) -> None:
    answers = {name: _speak(http, response_format=name, stream=stream, seed=3) for name in ("pcm", "wav", "flac")}
    assert answers["pcm"].headers["content-type"] == "audio/pcm;rate=24000;channels=1"
    assert answers["flac"].headers["content-type"] == "audio/flac"
    pcm = np.frombuffer(answers["pcm"].content, "<i2")
    for name in ("wav", "flac"):
        audio = decode_audio(answers[name].content)
        assert audio.sample_rate == 24_000
        assert np.array_equal(np.round(audio.samples * 32768).astype("<i2"), pcm)


def test_the_same_seed_gives_the_same_bytes_and_is_told(http: httpx.Client) -> None:
    first = _speak(http, seed=11, response_format="pcm")
    assert first.headers["x-seed"] == "11"
    assert _speak(http, seed=11, response_format="pcm").content == first.content
    drawn = _speak(http, response_format="pcm")
    assert _speak(http, seed=int(drawn.headers["x-seed"]), response_format="pcm").content == drawn.content


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("speed", [0.5, 1.5])
def test_speed_changes_the_duration(http: httpx.Client, speed: float, stream: bool) -> None:
    plain = len(_speak(http, seed=5, response_format="pcm", stream=stream).content)
    changed = len(_speak(http, seed=5, response_format="pcm", stream=stream, speed=speed).content)
    assert changed == pytest.approx(plain / speed, rel=0.03)


@pytest.mark.parametrize("transcript", [None, "A tone that moves up and down."])
def test_a_reference_recording_brings_the_voice(http: httpx.Client, transcript: str | None) -> None:
    body = {"ref_audio": recording(), "stream": False, "seed": 1}
    answer = _speak(http, **body, **({"ref_text": transcript} if transcript else {}))
    assert answer.status_code == 200, answer.text
    assert len(answer.content) > 24_000


def test_models_and_voices_are_listed(client: openai.OpenAI, http: httpx.Client) -> None:
    assert [model.id for model in client.models.list()] == ["embedded"]
    assert client.models.retrieve("embedded").id == "embedded"
    (voice,) = http.get("/v1/audio/voices").json()["voices"]
    assert (voice["id"], voice["default"], voice["supported_modes"]) == ("cosy", True, ["preset"])


def test_a_response_carries_the_request_id(http: httpx.Client) -> None:
    own = http.get("/v1/models", headers={"X-Request-Id": "abc-1"})
    assert own.headers["x-request-id"] == "abc-1"
    assert len(http.get("/v1/models").headers["x-request-id"]) == 32
    assert http.get("/v1/nothing").headers["x-request-id"]


def test_metrics_count_requests_and_audio(http: httpx.Client) -> None:
    assert _speak(http).status_code == 200
    text = http.get("/metrics").text
    assert 'cosyserve_requests_total{mode="preset",outcome="ok",route="speech"}' in text
    assert "cosyserve_ttfa_seconds_bucket" in text
    assert "cosyserve_audio_seconds_total" in text


def test_paths_that_anybody_invents_make_no_series(http: httpx.Client) -> None:
    before = len(http.get("/metrics").text.splitlines())
    for number in range(30):
        assert http.get(f"/nothing/{number}").status_code == 404
        assert http.get(f"/v1/models/{number}").status_code == 404
    assert len(http.get("/metrics").text.splitlines()) == before


def test_probes_answer(http: httpx.Client) -> None:
    assert http.get("/livez").status_code == 200
    assert http.get("/readyz").status_code == 200
