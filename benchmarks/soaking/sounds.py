"""The recordings that a soak sends, and how much two answers differ."""

from __future__ import annotations

import base64
import io
import wave
from functools import cache

import numpy as np

from audio.decode import decode_audio
from launch.demo import REFERENCE, REFERENCE_TEXT

__all__ = ["REFERENCE_TEXT", "data_url", "difference", "recording", "samples_of"]

FULL_SCALE = 32_768


@cache
def _reference() -> tuple[np.ndarray, int]:
    """`[L]` float32, hertz."""
    audio = decode_audio(REFERENCE.read_bytes())
    return audio.samples, audio.sample_rate


def recording(speaker: float = 1.0, gain: float = 1.0, seconds: float | None = None) -> bytes:
    """A WAV file of REFERENCE_TEXT, or of its first `seconds`.

    `speaker` above 1: a smaller person, who speaks faster. Another `gain` is another recording: nothing that is kept of
    one serves for the other.
    """
    samples, rate = _reference()
    if seconds is not None:
        samples = samples[: round(seconds * rate)]
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(round(speaker * rate))
        writer.writeframes((gain * FULL_SCALE * samples).astype("<i2").tobytes())
    return file.getvalue()


def data_url(file: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(file).decode()


def samples_of(file: bytes, audio_format: str) -> np.ndarray:
    """`[L]` float32. `audio_format`: `pcm` is 16 bit little-endian mono; what else it is, the first bytes say."""
    if audio_format == "pcm":
        return np.frombuffer(file, "<i2").astype(np.float32) / FULL_SCALE
    return decode_audio(file).samples


def difference(one: bytes, other: bytes, audio_format: str) -> float:
    """The greatest difference of two samples, full scale being 1; infinite where the lengths differ."""
    if one == other:
        return 0.0
    samples, expected = samples_of(one, audio_format), samples_of(other, audio_format)
    if len(samples) != len(expected):
        return float("inf")
    return float(np.abs(samples - expected).max(initial=0.0))
