"""Forms with recordings, damaged in their fields, in their files and as a whole: followed or refused, never a 5xx."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from api.app import create_app
from benchmarks.soaking.forms import FORM, form
from models.conditioning import Conditioning
from tests.api.oip_backend import FakeBackend
from tests.fuzz.damage import CHANGES, HANG_SECONDS, JUNK, TIMES, Changes, damaged
from tests.runners.voice_folder import conditioning

RATE = 16_000
_TIME = np.arange(int(1.5 * RATE)) / RATE
_SOUND = 0.3 * np.sin(2 * np.pi * 150 * _TIME) * np.sin(2 * np.pi * 2 * _TIME)


def _file(audio_format: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, _SOUND, RATE, format=audio_format)
    return file.getvalue()


FILES = {audio_format: _file(audio_format) for audio_format in ("WAV", "FLAC", "OGG", "MP3")}


class Hearing(FakeBackend):
    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        assert np.isfinite(np.frombuffer(samples, np.float32)).all()
        return conditioning()


@dataclass(frozen=True)
class Upload:
    """A form that is followed, whatever of FILES stands in each of `files`."""

    path: str
    files: tuple[str, ...]
    fields: dict[str, str]


UPLOADS = {
    "voice": Upload(
        "/v1/audio/voices",
        ("audio_sample",),
        {"name": "Ada", "consent": "I agree.", "ref_text": "Hm.", "overwrite": "true"},
    ),
    "conversion": Upload(
        "/v1/audio/voice-conversion", ("source_audio", "ref_audio"), {"seed": "7", "response_format": "pcm"}
    ),
    "speech": Upload(
        "/v1/audio/speech",
        ("ref_audio",),
        {"input": "Good morning.", "speed": "1.5", "response_format": "wav", "stream": "true", "ref_text": "Hm."},
    ),
}


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Post a body; a failure of the application comes out of it."""
    monkeypatch.setenv("COSYSERVE_VOICES", str(tmp_path))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(create_app(Hearing())), base_url="http://server")
    loop = asyncio.new_event_loop()

    def posted(path: str, body: bytes) -> httpx.Response:
        sent = http.post(path, content=body, headers={"Content-Type": FORM})
        return loop.run_until_complete(asyncio.wait_for(sent, HANG_SECONDS))

    yield posted
    loop.run_until_complete(http.aclose())
    loop.close()


@pytest.mark.parametrize("name", UPLOADS)
def test_the_forms_that_are_damaged_are_good(post: Any, name: str) -> None:
    upload = UPLOADS[name]
    for file in FILES.values():
        answer = post(upload.path, form(upload.fields, dict.fromkeys(upload.files, file)))
        assert answer.status_code < 300, answer.text


@pytest.mark.parametrize("name", UPLOADS)
def test_damaged_forms_are_followed_or_refused(post: Any, name: str) -> None:
    upload = UPLOADS[name]
    junk = st.dictionaries(st.sampled_from([*upload.fields, *upload.files, "x"]), JUNK.map(str), max_size=2)
    gone = st.sets(st.sampled_from([*upload.fields]), max_size=1)

    @settings(max_examples=15 * TIMES, deadline=None)
    @given(junk, gone, st.sampled_from([*FILES]), CHANGES, st.floats(0, 1), CHANGES)
    def hold(
        junk: dict[str, str], gone: set[str], audio_format: str, in_file: Changes, kept: float, in_body: Changes
    ) -> None:
        fields = {field: value for field, value in {**upload.fields, **junk}.items() if field not in gone}
        body = form(
            {field: value.encode(errors="replace").decode() for field, value in fields.items()},
            {
                **dict.fromkeys(upload.files, FILES[audio_format]),
                upload.files[0]: damaged(FILES[audio_format], in_file, kept),
            },
        )
        answer = post(upload.path, damaged(body, in_body, 1.0))
        if answer.status_code >= 300:
            assert 400 <= answer.status_code < 500, answer.text
            error = answer.json()["error"]
            assert error["code"]
            assert len(error["message"]) > 10

    hold()
