"""What the speech endpoints can be asked for, from the real service on the embedded voice."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.service.conftest import recording

RATE = 24_000
TEXT = "Good morning, how are you today?"


def _speak(http: httpx.Client, **body) -> httpx.Response:
    answer = http.post("/v1/audio/speech", json={"input": TEXT, "seed": 3, **body})
    assert answer.status_code == 200, answer.text
    return answer


def _samples(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2") / 32768


def test_markup_is_heard_with_its_pause_and_the_times_of_its_segments(http: httpx.Client) -> None:
    ssml = '<speak>Good morning. <break time="800ms"/><prosody rate="80%" volume="-6dB">How are you?</prosody></speak>'
    options = {"input": ssml, "input_type": "ssml", "timestamp_granularities": ["segment"], "response_format": "pcm"}
    lines = _speak(http, **options, stream_format="sse").text.splitlines()
    *deltas, done = [json.loads(line[6:]) for line in lines if line]
    samples = _samples(b"".join(base64.b64decode(event["audio"]) for event in deltas))
    first, second = done["segments"]
    assert first["start_s"] == 0
    assert second["start_s"] - first["end_s"] == pytest.approx(0.8, abs=0.001)
    assert second["end_s"] == pytest.approx(len(samples) / RATE, abs=0.001)
    pause = samples[round(first["end_s"] * RATE) + 1 : round(second["start_s"] * RATE) - 1]
    assert not pause.any()
    assert abs(samples).max() > 0.05
    told = _speak(http, **options, stream=False).json()
    assert [segment["text"] for segment in told["segments"]] == [first["text"], second["text"]]
    assert told["segments"][-1]["end_s"] == pytest.approx(told["duration_s"], abs=0.001)


def test_volume_pitch_and_rate_shape_the_same_speech(http: httpx.Client) -> None:
    plain = _samples(_speak(http, response_format="pcm", stream=False).content)
    quiet = _samples(_speak(http, response_format="pcm", stream=False, volume=25).content)
    assert quiet.std() == pytest.approx(plain.std() / 2, rel=0.02)
    shaped = _speak(http, response_format="wav", stream=False, sample_rate=16_000, pitch=1.2)
    samples, rate = soundfile.read(io.BytesIO(shaped.content))
    assert rate == int(shaped.headers["x-sample-rate"]) == 16_000
    assert len(samples) / rate == pytest.approx(len(plain) / RATE, abs=0.001)


def test_sampling_is_the_requests_own(http: httpx.Client) -> None:
    plain = _speak(http, response_format="pcm", stream=False)
    assert _speak(http, response_format="pcm", stream=False, temperature=1.0).content == plain.content
    greedy = [_speak(http, response_format="pcm", stream=False, top_k=1).content for _ in range(2)]
    assert greedy[0] == greedy[1] != plain.content
    short = _speak(http, stream=False, max_new_tokens=30, input="Good morning.")
    assert short.headers["x-finish-reason"] in ("stop", "length")
    assert int(short.headers["x-usage-output-tokens"]) <= 30
    assert int(plain.headers["x-usage-output-tokens"]) > 30


def test_the_sdk_sends_what_openai_does_not_have(client: openai.OpenAI) -> None:
    answer = client.audio.speech.create(
        model="embedded",
        voice={"id": "cosy"},
        input=TEXT,
        response_format="flac",
        speed=1.5,
        extra_body={"stream": False, "volume": 60, "sample_rate": 22_050, "timeout_s": 60, "language": "en"},
    )
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert rate == 22_050
    assert 0.5 < len(samples) / rate < 4


def test_a_recording_is_said_in_another_voice(http: httpx.Client) -> None:
    files = {
        name: (f"{name}.wav", base64.b64decode(recording(seconds).partition(",")[2]))
        for name, seconds in (("source_audio", 2.0), ("ref_audio", 3.0))
    }
    answer = http.post("/v1/audio/voice-conversion", files=files, data={"stream": "false", "seed": "1"})
    assert answer.status_code == 200, answer.text
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert len(samples) / rate == pytest.approx(2.0, abs=0.1)
    assert abs(samples).max() > 0.01
    refused = http.post("/v1/audio/voice-conversion", files={"source_audio": files["source_audio"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")


def test_a_form_brings_its_reference_as_a_file(http: httpx.Client) -> None:
    sound = base64.b64decode(recording().partition(",")[2])
    form = {"input": TEXT, "seed": "1", "stream": "false"}
    answer = http.post("/v1/audio/speech", data=form, files={"ref_audio": ("a.wav", sound)})
    assert answer.status_code == 200, answer.text
    assert answer.content == _speak(http, ref_audio=recording(), seed=1, stream=False).content


def test_a_batch_holds_what_single_requests_would(http: httpx.Client) -> None:
    items = [{"input": TEXT, "seed": 3}, {"input": "你好"}, {"input": "Good night.", "seed": 4}]
    told = http.post("/v1/audio/speech/batch", json={"items": items, "response_format": "pcm"}).json()
    assert [result["status"] for result in told["results"]] == ["success", "error", "success"]
    assert told["results"][1]["error"]["code"] == "unsupported_language"
    alone = _samples(_speak(http, response_format="pcm", stream=False).content)
    assert len(base64.b64decode(told["results"][0]["audio_data"])) == 2 * len(alone)


def test_a_deadline_that_is_too_short_is_told(http: httpx.Client) -> None:
    answer = http.post("/v1/audio/speech", json={"input": TEXT * 10, "stream": False, "timeout_s": 0.05})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
