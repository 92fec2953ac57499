"""Encode float audio in the format a client asked for, piece by piece while it is made or as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from audio.codec import CODINGS, CodecEncoder, coded_rate
from audio.errors import AudioError
from audio.pcm import WAV_TYPE, PcmEncoder, WavEncoder, pcm_type, to_pcm16, wav_header

__all__ = ["FORMATS", "Coded", "Encoder", "coded_as", "encode_whole", "make_encoder", "to_pcm16", "wav_header"]


@dataclass(frozen=True)
class Coded:
    """What audio is once it is encoded: its MIME type, and the rate in Hz that its file declares."""

    content_type: str
    sample_rate: int


class Encoder(Protocol):
    """One response's container: `begin`, then `feed` any number of times, then `end`.

    The concatenated bytes are one valid file of `content_type`, whose own rate is `sample_rate`. `feed` takes mono
    float32 samples (full scale 1.0, any length) at the rate the encoder was made for and may hold some back; `end`
    returns the rest. An encoder serves one response.
    """

    content_type: str
    sample_rate: int

    def begin(self) -> bytes:
        """What must be sent before any audio; may be empty."""

    def feed(self, samples: np.ndarray) -> bytes:
        """Encode [L] samples. Raises AudioError nonfinite_audio."""

    def end(self) -> bytes:
        """What is held back; may be empty."""


_ENCODERS: dict[str, Callable[[int], Encoder]] = {
    "wav": WavEncoder,
    "pcm": PcmEncoder,
    **{name: partial(CodecEncoder, coding) for name, coding in CODINGS.items()},
}
FORMATS = tuple(_ENCODERS)


def coded_as(audio_format: str, sample_rate: int) -> Coded:
    """What `make_encoder` would make of audio of `sample_rate` Hz. Raises AudioError unsupported_format."""
    _check(audio_format)
    if audio_format in CODINGS:
        return Coded(CODINGS[audio_format].content_type, coded_rate(CODINGS[audio_format], sample_rate))
    return Coded(WAV_TYPE if audio_format == "wav" else pcm_type(sample_rate), sample_rate)


def make_encoder(audio_format: str, sample_rate: int) -> Encoder:
    """A fresh streaming encoder for mono audio of `sample_rate` Hz. Raises AudioError unsupported_format."""
    _check(audio_format)
    return _ENCODERS[audio_format](sample_rate)


def _check(audio_format: str) -> None:
    if audio_format not in _ENCODERS:
        raise AudioError(
            "unsupported_format", f"The response format must be one of {', '.join(FORMATS)}; others are not made."
        )


def encode_whole(audio_format: str, samples: np.ndarray, sample_rate: int) -> bytes:
    """A complete file with exact lengths in its header: [L] float32 samples, full scale 1.0.

    Raises AudioError unsupported_format, nonfinite_audio.
    """
    if audio_format in CODINGS:
        encoder = CodecEncoder(CODINGS[audio_format], sample_rate, streamed=False)
        encoder.add(samples)
        return encoder.end()
    pcm = make_encoder(audio_format, sample_rate).feed(samples)
    return wav_header(sample_rate, len(pcm)) + pcm if audio_format == "wav" else pcm
