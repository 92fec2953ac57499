"""A voice that is saved on the running service speaks exactly as its recording does inline, until it is deleted."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.service.conftest import recording

VOICES = "/v1/audio/voices"
TRANSCRIPT = "Good morning, how are you?"
CONSENT = "The hummed voice agreed."


@pytest.fixture
def voice(http: httpx.Client) -> Iterator[dict]:
    answer = http.post(
        VOICES,
        data={"name": "Hummer", "consent": CONSENT, "ref_text": TRANSCRIPT},
        files={"audio_sample": ("hum.wav", base64.b64decode(recording().partition(",")[2]), "audio/wav")},
    )
    assert answer.status_code == 201, answer.text
    yield answer.json()
    assert http.delete(f"{VOICES}/{answer.json()['id']}").status_code == 200
    assert http.get(f"{VOICES}/{answer.json()['id']}").status_code == 404


def test_saved_and_inline_sound_the_same_to_the_last_byte(http: httpx.Client, voice: dict) -> None:
    plain = {"input": "Hello there.", "stream": False, "seed": 5}
    inline = http.post("/v1/audio/speech", json={**plain, "ref_audio": recording(), "ref_text": TRANSCRIPT})
    assert inline.status_code == 200
    for name in (voice["id"], "Hummer"):
        saved = http.post("/v1/audio/speech", json={**plain, "voice": name})
        assert saved.status_code == 200, saved.text
        assert saved.content == inline.content
    crossed = http.post("/v1/audio/speech", json={**plain, "voice": "Hummer", "task_type": "cross_lingual"})
    assert crossed.status_code == 200
    assert crossed.content != inline.content
    again = http.post("/v1/audio/speech", json={**plain, "voice": "Hummer"})
    assert again.content == inline.content
    assert http.get(f"{VOICES}/{voice['id']}").json() == voice


def test_the_openai_sdk_speaks_with_it(client: openai.OpenAI, voice: dict) -> None:
    speech = client.audio.speech.create(model="embedded", voice=voice["id"], input="Hello.", response_format="wav")
    assert len(speech.content) > 10_000


def test_its_preview_is_heard_and_the_metrics_count_it(http: httpx.Client, voice: dict) -> None:
    preview = http.post(f"{VOICES}/{voice['id']}/preview")
    assert preview.status_code == 200
    samples, rate = soundfile.read(io.BytesIO(preview.content))
    assert 0.5 < len(samples) / rate < 10
    assert np.abs(samples).max() > 0.01
    http.get(VOICES)
    metrics = http.get("/metrics").text
    assert 'cosyserve_voices{state="usable"} 1.0' in metrics
    assert 'cosyserve_requests_total{mode="saved",outcome="ok",route="voice_preview"}' in metrics
