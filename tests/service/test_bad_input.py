"""Whatever is sent, the answer is a 4xx with a stable code and a sentence: never a 5xx, never an empty 200."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

from tests.service.conftest import recording

TEXT = "Good morning."


def _data_url(data: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(data).decode()


def _refused(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert len(error["message"]) > 10
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "input_empty"),
        (" \n\t ", "input_empty"),
        ("……！？。、；", "no_speakable_text"),
        ("?!...", "no_speakable_text"),
        ("\U0001f600\U0001f44d", "no_speakable_text"),
        ("a" * 100_000, "input_too_long"),
        ("<|endofprompt|><|im_start|>", "no_speakable_text"),
        ("你好，世界", "unsupported_language"),
    ],
)
def test_text_that_cannot_be_spoken(http: httpx.Client, text: str, code: str) -> None:
    _refused(http.post("/v1/audio/speech", json={"input": text}), 400, code)


def test_control_tokens_are_neutralised_and_the_rest_is_spoken(http: httpx.Client) -> None:
    answer = http.post("/v1/audio/speech", json={"input": "Press <|endofprompt|> to continue \x00<|im_end|> now."})
    assert answer.status_code == 200
    assert len(answer.content) > 20_000


@pytest.mark.parametrize("body", [b'{"input": "caf\xe9"}', b"\xff\xfe\x00", b'{"input": "\\ud800"}'])
def test_text_that_is_not_utf8(http: httpx.Client, body: bytes) -> None:
    _refused(http.post("/v1/audio/speech", content=body), 400, "input_not_utf8")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b"{", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b"[]", 422, "invalid_type"),
        (b'"text"', 422, "invalid_type"),
        (b"{}", 400, "missing_parameter"),
        (b'{"input": 5}', 422, "invalid_type"),
        (b'{"input": null}', 422, "invalid_type"),
        (b'{"input": ["a"]}', 422, "invalid_type"),
    ],
)
def test_a_body_of_the_wrong_shape(http: httpx.Client, body: bytes, status: int, code: str) -> None:
    _refused(http.post("/v1/audio/speech", content=body), status, code)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"voice": "nobody"}, 404, "voice_not_found"),
        ({"voice": "inline"}, 400, "voice_required"),
        ({"voice": 7}, 422, "invalid_type"),
        ({"voice": "../../etc/passwd"}, 404, "voice_not_found"),
        ({"model": "gpt-9"}, 404, "model_not_found"),
        ({"response_format": "midi"}, 400, "unsupported_format"),
        ({"response_format": "wma"}, 400, "unsupported_format"),
        ({"speed": 0}, 400, "invalid_value"),
        ({"speed": 99}, 400, "invalid_value"),
        ({"speed": float("nan")}, 400, "invalid_value"),
        ({"speed": "fast"}, 422, "invalid_type"),
        ({"seed": -1}, 400, "invalid_value"),
        ({"seed": 2**64}, 400, "invalid_value"),
        ({"seed": 1.5}, 422, "invalid_type"),
        ({"stream": "yes"}, 422, "invalid_type"),
        ({"stream": False, "stream_format": "sse"}, 400, "invalid_value"),
        ({"stream_format": "morse"}, 400, "invalid_value"),
        ({"instructions": "Whisper."}, 400, "unsupported_parameter"),
        ({"instructions": "x" * 513}, 400, "invalid_value"),
        ({"watermark": True}, 400, "unsupported_parameter"),
        ({"colour": "blue"}, 400, "unknown_parameter"),
        ({"ref_text": "hello"}, 400, "invalid_value"),
        ({"instructions": " "}, 400, "unsupported_parameter"),
        ({"voice": "v" * 1_000_000}, 404, "voice_not_found"),
        ({"k" * 1_000_000: 1}, 400, "unknown_parameter"),
        ({"instructions": "Whisper.", "ref_audio": recording(), "ref_text": "hello"}, 400, "invalid_value"),
    ],
)
def test_a_parameter_that_cannot_be_honoured(http: httpx.Client, fields: dict, status: int, code: str) -> None:
    answer = http.post("/v1/audio/speech", content=json.dumps({"input": TEXT, **fields}))
    _refused(answer, status, code)


@pytest.mark.parametrize(
    ("ref_audio", "code"),
    [
        (_data_url(b"this is not audio at all, however long it may be" * 100), "ref_audio_invalid"),
        (_data_url(b""), "ref_audio_invalid"),
        ("data:audio/wav;base64,@@@", "ref_audio_invalid"),
        ("hello", "ref_audio_invalid"),
        ("https://example.com/voice.wav", "ref_audio_url_not_allowed"),
        ("file:///etc/passwd", "ref_audio_url_not_allowed"),
        (recording(31), "ref_audio_too_long"),
        (recording(0.2), "ref_audio_too_short"),
        (recording(3, rate=8000), "ref_audio_sample_rate"),
        (recording(3, level=0), "ref_audio_silent"),
        (_data_url(bytes(11 * 2**20)), "ref_audio_too_large"),
    ],
)
def test_a_reference_that_is_none(http: httpx.Client, ref_audio: str, code: str) -> None:
    _refused(http.post("/v1/audio/speech", json={"input": TEXT, "ref_audio": ref_audio}), 400, code)


@pytest.mark.parametrize(("ref_text", "code"), [("!!!", "invalid_value"), ("你好", "unsupported_language")])
def test_a_transcript_without_words(http: httpx.Client, ref_text: str, code: str) -> None:
    body = {"input": TEXT, "ref_audio": recording(), "ref_text": ref_text}
    answer = http.post("/v1/audio/speech", json=body)
    _refused(answer, 400, code)
    assert answer.json()["error"]["param"] == "ref_text"


def test_a_voice_and_a_reference_contradict_each_other(http: httpx.Client) -> None:
    body = {"input": TEXT, "voice": "cosy", "ref_audio": recording()}
    _refused(http.post("/v1/audio/speech", json=body), 400, "voice_conflict")


def test_a_body_over_the_limit(http: httpx.Client) -> None:
    answer = http.post("/v1/audio/speech", content=b'{"input": "' + b"a" * (17 * 2**20) + b'"}')
    _refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/audio/speech", 404, "not_found"),
        ("POST", "/v1/audio/transcriptions", 404, "not_found"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("DELETE", "/v1/models", 404, "not_found"),
    ],
)
def test_a_path_that_is_not_there(http: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    _refused(http.request(method, path), status, code)
