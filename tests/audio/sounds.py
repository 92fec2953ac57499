"""Sounds and sound files for the audio tests, made on the spot."""

from __future__ import annotations

import io
import struct

import av
import numpy as np
import soundfile


def voice_like(seconds: float, sample_rate: int = 24000, level: float = 0.1) -> np.ndarray:
    """A hum with noise: [L] float32, about as loud as speech."""
    t = np.arange(int(seconds * sample_rate)) / sample_rate
    noise = np.random.default_rng(0).normal(0, 0.2, t.size)
    return (level * (np.sin(2 * np.pi * 140 * t) + noise)).astype(np.float32)


def syllables(seconds: float, sample_rate: int = 24000) -> np.ndarray:
    """A gliding harmonic sound, loud and soft four times a second: [L] float32, peaked as speech is."""
    t = np.arange(round(seconds * sample_rate)) / sample_rate
    phase = 2 * np.pi * np.cumsum(130 + 20 * np.sin(2 * np.pi * 0.7 * t)) / sample_rate
    voice = sum(np.cos(k * phase + k * k) / k for k in range(1, 20))
    envelope = np.abs(np.sin(2 * np.pi * 2 * t)) ** 1.5 * (1 + 0.4 * np.sin(2 * np.pi * 0.3 * t))
    return (0.1 * voice * envelope).astype(np.float32)


def muxed(
    samples: np.ndarray, sample_rate: int, container: str, codec: str, options: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """`samples` [L] or [channels, L] in FFmpeg's `container` and `codec`; of a picture's codec, one black picture."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=dict(options)) as file:
        stream = file.add_stream(codec, rate=sample_rate)
        if isinstance(stream, av.AudioStream):
            planes = np.atleast_2d(samples)
            stream.layout = frame_layout = "mono" if len(planes) == 1 else "stereo"
            interleaved = np.rint(planes.T.reshape(1, -1) * 32767).astype("<i2")
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(interleaved), format="s16", layout=frame_layout)
            frame.sample_rate = sample_rate
            file.mux(stream.encode(frame))
            file.mux(stream.encode(None))
        elif isinstance(stream, av.VideoStream):
            stream.width = stream.height = 16
            file.mux(stream.encode(av.VideoFrame(16, 16, "yuv420p")))
            file.mux(stream.encode(None))
    return buffer.getvalue()


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
