"""`POST /v1/audio/voice-conversion`: the speech of one recording in the voice of another, long ones in pieces."""

from __future__ import annotations

import base64
import io

import httpx
import numpy as np
import pytest
import soundfile

from api.app import create_app
from api.conversion import CHARACTERS_PER_SECOND, cut
from api.limits import KeyLimits, Meter
from audio.decode import Audio
from models.conditioning import Conditioning
from tests.api.oip_backend import HOP, HOPS, RATE, FakeBackend
from tests.service.conftest import recording

CONVERT = "/v1/audio/voice-conversion"


class Hearing(FakeBackend):
    """Hears one speech token per second."""

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        await super().encode(samples, sample_rate)
        tokens = np.arange(len(samples) // 4 // sample_rate, dtype=np.int32)
        return Conditioning(np.zeros(192, np.float32), tokens, np.zeros((2 * len(tokens), 80), np.float32))


def _sound(seconds: float) -> tuple[str, bytes]:
    return "a.wav", base64.b64decode(recording(seconds, rate=16_000).partition(",")[2])


async def _post(backend: FakeBackend, files: dict, data: dict | None = None) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server") as http:
        return await http.post(CONVERT, files=files, data=data or {})


async def test_a_recording_is_said_in_the_voice_of_another() -> None:
    backend = Hearing()
    files = {"source_audio": _sound(3), "ref_audio": _sound(5)}
    answer = await _post(backend, files, {"seed": "7", "stream": "false", "response_format": "flac", "speed": "1.25"})
    assert answer.status_code == 200, answer.text
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert (len(samples), rate) == (HOP * HOPS, RATE)
    (request,) = backend.requests
    assert (request.source_tokens, request.segments, request.seed, request.speed) == ((0, 1, 2), (), 7, 1.25)
    assert request.conditioning is not None
    assert len(request.conditioning.prompt_tokens) == 5


async def test_a_long_recording_is_heard_in_pieces() -> None:
    backend = Hearing()
    answer = await _post(backend, {"source_audio": _sound(70), "ref_audio": _sound(2)}, {"response_format": "pcm"})
    assert len(answer.content) == 3 * 2 * HOP * HOPS
    heard = [len(request.source_tokens) for request in backend.requests]
    assert len(heard) == 3
    assert all(20 <= seconds <= 30 for seconds in heard)


@pytest.mark.parametrize("seconds", [30.0, 30.01, 61.0, 299.0])
def test_pieces_are_the_whole_and_are_cut_where_it_is_quiet(seconds: float) -> None:
    rate = 16_000
    time = np.arange(round(seconds * rate)) / rate
    audio = Audio((np.sin(2 * np.pi * 300 * time) * (np.sin(2 * np.pi * time / 3) > 0)).astype(np.float32), rate)
    pieces = cut(audio)
    np.testing.assert_array_equal(np.concatenate([piece.samples for piece in pieces]), audio.samples)
    assert all(13 <= piece.duration <= 30 for piece in pieces)
    for piece in pieces[:-1]:
        assert not piece.samples[-100:].any()


@pytest.mark.parametrize(
    ("files", "data", "status", "code", "param"),
    [
        ({"ref_audio": _sound(1)}, {}, 400, "missing_parameter", "source_audio"),
        ({"source_audio": _sound(0.5)}, {"voice": "cosy"}, 400, "ref_audio_too_short", "source_audio"),
        ({"source_audio": ("a.wav", b"RIFF")}, {"voice": "cosy"}, 400, "ref_audio_invalid", "source_audio"),
        ({"source_audio": _sound(1)}, {"voice": "cosy"}, 400, "unsupported_parameter", "voice"),
        ({"source_audio": _sound(1)}, {"voice": "nobody"}, 404, "voice_not_found", "voice"),
        ({"source_audio": _sound(1), "ref_audio": _sound(1)}, {"voice": "cosy"}, 400, "voice_conflict", "voice"),
        ({"source_audio": _sound(1)}, {"voice": "cosy", "input": "Hi."}, 400, "unknown_parameter", "input"),
        ({"source_audio": _sound(1)}, {"voice": "cosy", "speed": "9"}, 400, "invalid_value", "speed"),
        ({"source_audio": _sound(1)}, {"voice": "cosy", "stream_format": "tv"}, 400, "invalid_value", "stream_format"),
    ],
)
async def test_what_cannot_be_converted_is_refused(files: dict, data: dict, status: int, code: str, param: str) -> None:
    backend = Hearing()
    answer = await _post(backend, files, data)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert not backend.requests and not backend.encoded


async def test_what_is_finer_than_the_tokenizer_hears_is_resampled_first() -> None:
    backend = Hearing()
    time = np.arange(3 * 96_000) / 96_000
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 200 * time), 96_000, format="FLAC")
    answer = await _post(backend, {"source_audio": ("a.flac", file.getvalue()), "ref_audio": _sound(2)})
    assert answer.status_code == 200, answer.text
    samples, rate = backend.encoded[-1]
    assert (rate, len(samples)) == (24_000, pytest.approx(72_000, abs=24))


async def test_a_source_counts_as_the_characters_that_it_speaks() -> None:
    backend = Hearing()
    files = {"source_audio": _sound(3), "ref_audio": _sound(2)}
    with Meter(KeyLimits(characters_per_day=4 * CHARACTERS_PER_SECOND)).request():
        assert (await _post(backend, files)).status_code == 200
        encoded = len(backend.encoded)
        refused = await _post(backend, files)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (429, "rate_limited", "source_audio")
    assert "source audio" in error["message"]
    assert len(backend.encoded) <= encoded + 1  # of the reference, not of the source
