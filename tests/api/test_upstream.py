"""Upstream's own routes: its client's forms in, 16 bit samples out, and nothing of them unless they are asked for."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from api.app import create_app
from api.upstream import VARIABLE
from runners.request import ModelInfo
from tests.api.oip_backend import FakeBackend, all_samples
from tests.service.conftest import recording

PROMPT = {"prompt_wav": ("prompt_wav", base64.b64decode(recording(1.0).partition(",")[2]), "application/octet-stream")}
SYSTEM = "You are a helpful assistant."


class Following(FakeBackend):
    """Follows instructions."""

    async def describe(self) -> ModelInfo:
        info = (await super().describe()).to_dict()
        return ModelInfo.from_dict({**info, "modes": (*info["modes"], "cross_lingual", "instruct")})


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    monkeypatch.setenv(VARIABLE, "1")
    return Following()


async def _send(backend: FakeBackend, mode: str, method: str = "POST", **parts: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server") as http:
        return await http.request(method, f"/inference_{mode}", **parts)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("mode", "data", "prompt", "expected"),
    [
        ("sft", {"tts_text": "Hi.", "spk_id": "other"}, {}, ("Hi.", "other", None, None)),
        ("zero_shot", {"tts_text": "Hi.", "prompt_text": "Said."}, PROMPT, ("Hi.", None, "Said.", None)),
        (
            "zero_shot",
            {"tts_text": "Hi.", "prompt_text": f"{SYSTEM}<|endofprompt|>Said."},
            PROMPT,
            ("Hi.", None, "Said.", None),
        ),
        ("cross_lingual", {"tts_text": "Hi."}, PROMPT, ("Hi.", None, None, None)),
        ("cross_lingual", {"tts_text": f"{SYSTEM}<|endofprompt|>Hi."}, PROMPT, ("Hi.", None, None, None)),
        ("instruct2", {"tts_text": "Hi.", "instruct_text": "Whisper."}, PROMPT, ("Hi.", None, None, "Whisper.")),
        (
            "instruct2",
            {"tts_text": "Hi.", "instruct_text": f"{SYSTEM} Whisper.<|endofprompt|>"},
            PROMPT,
            ("Hi.", None, None, "Whisper."),
        ),
    ],
)
async def test_a_form_of_upstreams_client_is_spoken(
    backend: FakeBackend, method: str, mode: str, data: dict, prompt: dict, expected: tuple
) -> None:
    answer = await _send(backend, mode, method, data=data, files=prompt)
    assert answer.status_code == 200, answer.text
    (request,) = backend.requests
    assert (request.segments[0], request.voice, request.prompt_text, request.instructions) == expected
    assert (request.conditioning is not None) == bool(prompt)
    samples = np.frombuffer(answer.content, "<i2")
    np.testing.assert_allclose(samples / 32768, all_samples(request.seed), atol=1 / 32768)
    assert answer.headers["x-sample-rate"] == "24000"


@pytest.mark.parametrize(
    ("mode", "data", "files", "status", "code"),
    [
        ("sft", {"tts_text": "Hi."}, {}, 400, "missing_parameter"),
        ("sft", {"tts_text": "Hi.", "spk_id": "nobody"}, {}, 404, "voice_not_found"),
        ("sft", {"tts_text": " ", "spk_id": "cosy"}, {}, 400, "missing_parameter"),
        ("sft", {"tts_text": "Hi.", "spk_id": "cosy", "speed": "2"}, {}, 400, "unknown_parameter"),
        ("sft", {"tts_text": "Hi.", "spk_id": "cosy"}, PROMPT, 400, "unknown_parameter"),
        ("zero_shot", {"tts_text": "Hi.", "prompt_text": "Said."}, {}, 400, "missing_parameter"),
        ("cross_lingual", {"tts_text": "Hi."}, {"prompt_wav": ("a", b"RIFF")}, 400, "ref_audio_invalid"),
        ("instruct", {"tts_text": "Hi.", "spk_id": "cosy", "instruct_text": "Whisper."}, {}, 404, "not_found"),
    ],
)
async def test_what_upstream_would_fail_on_is_refused(
    backend: FakeBackend, mode: str, data: dict, files: dict, status: int, code: str
) -> None:
    answer = await _send(backend, mode, data=data, files=files)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert not backend.requests


async def test_the_routes_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    answer = await _send(FakeBackend(), "sft", data={"tts_text": "Hi.", "spk_id": "cosy"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
