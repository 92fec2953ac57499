"""Samples as the audio tensor a client asked for, whole or hop by hop."""

from __future__ import annotations

import base64

import numpy as np

from api.answers import PLAIN_FORMATS
from api.oip.tensors import BYTES, Tensor
from api.wish import check_format
from audio.encode import FORMATS as FILE_FORMATS
from audio.encode import Encoder, coded_as, encode_whole, make_encoder, to_pcm16
from audio.errors import AudioError

INT16, FLOAT32 = "int16", "float32"
_BASE64 = "_base64"
AUDIO_FORMATS = (*FILE_FORMATS, *(name + _BASE64 for name in FILE_FORMATS), INT16, FLOAT32)
"""Files as UINT8, files as base64 text in one BYTES element (never raw BYTES: clients take BYTES for text), samples."""


class AudioTensor:
    """One response's audio in `audio_format`: `whole` once, or `feed` for each hop and then `end`. `sample_rate` is its
    own, which some formats choose.

    Tensors have shape [N], or [1, N] with `batched`. Raises ApiError unsupported_format, AudioError nonfinite_audio.
    """

    def __init__(self, audio_format: str, sample_rate: int, name: str = "audio", batched: bool = False) -> None:
        check_format(audio_format, AUDIO_FORMATS, "format")
        self.audio_format = audio_format
        self._name, self._batched = name, batched
        self.file_format = audio_format.removesuffix(_BASE64)
        self._is_file = self.file_format in FILE_FORMATS
        self._made_at = sample_rate
        self.sample_rate = coded_as(self.file_format, sample_rate).sample_rate if self._is_file else sample_rate
        self._encoder: Encoder | None = None  # of a stream, from its first hop on

    @property
    def takes_time(self) -> bool:
        """Whether `feed` is work for a thread."""
        return self._is_file and self.file_format not in PLAIN_FORMATS

    @property
    def elements_per_sample(self) -> int:
        """How many elements of the tensor one sample takes at most (0: the tensor is one element)."""
        if self.audio_format.endswith(_BASE64):
            return 0
        return 2 if self._is_file else 1

    def whole(self, samples: np.ndarray) -> Tensor:
        """All samples `[L]` float32; files have exact sizes in their headers."""
        if not self._is_file:
            return self._samples(samples)
        return self._bytes(encode_whole(self.file_format, samples, self._made_at))

    def feed(self, samples: np.ndarray) -> Tensor | None:
        """The next hop, `[L]` float32; None while the file format holds it back."""
        if not self._is_file:
            return self._samples(samples)
        head = b""
        if self._encoder is None:
            self._encoder = make_encoder(self.file_format, self._made_at)
            head = self._encoder.begin()
        data = head + self._encoder.feed(samples)
        return self._bytes(data) if data else None

    def end(self) -> Tensor | None:
        """What was held back, if anything."""
        data = self._encoder.end() if self._encoder else b""
        return self._bytes(data) if data else None

    def _bytes(self, data: bytes) -> Tensor:
        if self.audio_format.endswith(_BASE64):
            return Tensor(self._name, BYTES, (1,), (base64.b64encode(data),))
        return self._tensor("UINT8", np.frombuffer(data, np.uint8))

    def _samples(self, samples: np.ndarray) -> Tensor:
        if self.audio_format == INT16:
            return self._tensor("INT16", to_pcm16(samples))
        if not np.isfinite(samples).all():
            raise AudioError("nonfinite_audio", "The model produced NaN or infinite samples.")
        return self._tensor("FP32", samples)

    def _tensor(self, datatype: str, data: np.ndarray) -> Tensor:
        shape = (1, len(data)) if self._batched else (len(data),)
        return Tensor(self._name, datatype, shape, data)
