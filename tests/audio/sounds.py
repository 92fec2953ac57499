"""Sounds and sound files for the audio tests, made on the spot."""

from __future__ import annotations

import io
import struct

import numpy as np
import soundfile


def voice_like(seconds: float, sample_rate: int = 24000, level: float = 0.1) -> np.ndarray:
    """A hum with noise: [L] float32, about as loud as speech."""
    t = np.arange(int(seconds * sample_rate)) / sample_rate
    noise = np.random.default_rng(0).normal(0, 0.2, t.size)
    return (level * (np.sin(2 * np.pi * 140 * t) + noise)).astype(np.float32)


def sound_file(samples: np.ndarray, sample_rate: int, container: str = "WAV", coding: str = "PCM_16") -> bytes:
    """`samples` as a file of libsndfile's `container` and `coding`."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, sample_rate, format=container, subtype=coding)
    return buffer.getvalue()


def wav_with(
    data: bytes, *, rate: int = 16000, channels: int = 1, bits: int = 16, coding: int = 1, size: int | None = None
) -> bytes:
    """A WAV whose header says whatever it is told to; `size` is the declared length of the data."""
    size = len(data) if size is None else size
    frame = channels * bits // 8
    fields = struct.pack("<HHIIHH", coding, channels, rate, rate * frame & 0xFFFFFFFF, frame, bits)
    head = b"RIFF" + struct.pack("<I", min(size + 36, 0xFFFFFFFF)) + b"WAVEfmt " + struct.pack("<I", 16)
    return head + fields + b"data" + struct.pack("<I", size) + data
