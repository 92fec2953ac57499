"""Encode float audio as WAV, raw PCM or FLAC, piece by piece while it is made or as a whole."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Protocol

import numpy as np
import soundfile

from audio.errors import AudioError

FLAC_COMPRESSION = 0.0
"""Fastest setting: blocks of 1152 samples (48 ms at 24 kHz), which bounds what the encoder holds back."""
_OPEN_LENGTH = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44


class Encoder(Protocol):
    """One response's container: `begin`, then `feed` any number of times, then `end`.

    The concatenated bytes are one valid file of `content_type`. `feed` takes mono float32 samples (full scale
    1.0, any length) and may hold some back; `end` returns the rest. An encoder serves one response.
    """

    content_type: str

    def begin(self) -> bytes:
        """What must be sent before any audio; may be empty."""

    def feed(self, samples: np.ndarray) -> bytes:
        """Encode [L] samples. Raises AudioError nonfinite_audio."""

    def end(self) -> bytes:
        """What is held back; may be empty."""


def to_pcm16(samples: np.ndarray) -> np.ndarray:
    """Round to 16 bits with saturation: [L] float, full scale 1.0 -> [L] int16 (little-endian).

    The scale is 32768, as every decoder divides by it. Raises AudioError nonfinite_audio: NaN would otherwise
    become a full-scale click.
    """
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 1:
        raise ValueError(f"expected mono audio of shape [L], got {list(samples.shape)}")
    if not np.isfinite(samples).all():
        raise AudioError("nonfinite_audio", "The model produced NaN or infinite samples.")
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2")


def wav_header(sample_rate: int, data_bytes: int | None) -> bytes:
    """The 44-byte header of mono PCM16 WAV. `data_bytes` None: length unknown, both sizes are 0xFFFFFFFF.

    Raises ValueError when the audio does not fit the format (4 GiB).
    """
    if data_bytes is None:
        riff_size = data_size = _OPEN_LENGTH
    else:
        riff_size, data_size = data_bytes + _WAV_HEADER_BYTES - 8, data_bytes
        if riff_size >= _OPEN_LENGTH:
            raise ValueError("more than 4 GiB of audio do not fit a WAV file")
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff_size, b"WAVE"),
        *(b"fmt ", 16, 1, 1, sample_rate, sample_rate * 2, 2, 16),
        *(b"data", data_size),
    )


class PcmEncoder:
    """Headerless signed 16-bit little-endian samples."""

    def __init__(self, sample_rate: int) -> None:
        self.content_type = f"audio/pcm;rate={sample_rate};channels=1"

    def begin(self) -> bytes:
        return b""

    def feed(self, samples: np.ndarray) -> bytes:
        return to_pcm16(samples).tobytes()

    def end(self) -> bytes:
        return b""


class WavEncoder(PcmEncoder):
    """WAV whose header leaves the length open, as players expect of a stream."""

    def __init__(self, sample_rate: int) -> None:
        self.content_type = "audio/wav"
        self._header = wav_header(sample_rate, None)

    def begin(self) -> bytes:
        return self._header


class _Outbox:
    """A write-only file for libsndfile whose bytes are handed out as they arrive.

    libsndfile goes back at the end to fill in the length and checksum; what has been handed out cannot change any
    more, so those writes apply only to bytes that are still here.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._position = 0
        self._waiting = bytearray()

    def take(self) -> bytes:
        """Everything written since the last call."""
        taken = bytes(self._waiting)
        self._sent += len(taken)
        self._waiting.clear()
        return taken

    def write(self, data: bytes) -> int:
        start = self._position - self._sent
        self._position += len(data)
        if start >= 0:
            self._waiting[start : start + len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._sent + len(self._waiting)}
        self._position = max(0, base[whence] + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        return b""


class FlacEncoder:
    """FLAC; while it streams, the header leaves the length and the checksum open (both optional in the format).

    `begin` is empty, because the header comes with the first full block. If nothing was taken out before `end`
    the header is complete.
    """

    content_type = "audio/flac"

    def __init__(self, sample_rate: int) -> None:
        self._outbox = _Outbox()
        self._file = soundfile.SoundFile(
            self._outbox,
            "w",
            samplerate=sample_rate,
            channels=1,
            format="FLAC",
            subtype="PCM_16",
            compression_level=FLAC_COMPRESSION,
        )

    def begin(self) -> bytes:
        return b""

    def add(self, samples: np.ndarray) -> None:
        """Encode without handing anything out."""
        self._file.write(to_pcm16(samples))

    def feed(self, samples: np.ndarray) -> bytes:
        self.add(samples)
        return self._outbox.take()

    def end(self) -> bytes:
        self._file.close()
        return self._outbox.take()


_ENCODERS: dict[str, Callable[[int], Encoder]] = {"wav": WavEncoder, "pcm": PcmEncoder, "flac": FlacEncoder}
FORMATS = tuple(_ENCODERS)


def make_encoder(audio_format: str, sample_rate: int) -> Encoder:
    """A fresh streaming encoder for mono audio of `sample_rate` Hz. Raises AudioError unsupported_format."""
    encoder = _ENCODERS.get(audio_format)
    if encoder is None:
        raise AudioError(
            "unsupported_format", f"The response format must be one of {', '.join(FORMATS)}; others are not made."
        )
    return encoder(sample_rate)


def encode_whole(audio_format: str, samples: np.ndarray, sample_rate: int) -> bytes:
    """A complete file with exact lengths in its header: [L] float32 samples, full scale 1.0.

    Raises AudioError unsupported_format, nonfinite_audio.
    """
    encoder = make_encoder(audio_format, sample_rate)
    if isinstance(encoder, FlacEncoder):
        encoder.add(samples)
        return encoder.end()
    pcm = encoder.feed(samples)
    if isinstance(encoder, WavEncoder):
        return wav_header(sample_rate, len(pcm)) + pcm
    return pcm
