"""Linear PCM: 16-bit samples, bare or as WAV."""

from __future__ import annotations

import struct

import numpy as np

from audio.errors import AudioError

WAV_TYPE = "audio/wav"
_OPEN_LENGTH = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44


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


def pcm_type(sample_rate: int) -> str:
    """The MIME type of bare samples, which says what they do not."""
    return f"audio/pcm;rate={sample_rate};channels=1"


class PcmEncoder:
    """Headerless signed 16-bit little-endian samples."""

    def __init__(self, sample_rate: int) -> None:
        self.content_type = pcm_type(sample_rate)
        self.sample_rate = sample_rate

    def begin(self) -> bytes:
        return b""

    def feed(self, samples: np.ndarray) -> bytes:
        return to_pcm16(samples).tobytes()

    def end(self) -> bytes:
        return b""


class WavEncoder(PcmEncoder):
    """WAV whose header leaves the length open, as players expect of a stream."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__(sample_rate)
        self.content_type = WAV_TYPE

    def begin(self) -> bytes:
        return wav_header(self.sample_rate, None)
