"""The models this server shows to inference clients: their names, their tensors, and what a request to them means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from api.errors import ApiError
from api.names import own_name, upstream_name
from api.oip.formats import FLOAT32, AudioTensor
from api.oip.tensors import BYTES, Tensor
from api.references import Reference
from api.wish import SpeechWish
from audio.decode import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE, Audio
from runners.request import ModelInfo

VERSION = "1"
PLATFORM = "cosyserve"
REFERENCE_RATE = 16_000
_BASE64_URL = "data:application/octet-stream;base64,"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as metadata shows it (`datatypes[0]`), and the further datatypes it may come in. -1: any size."""

    name: str
    datatypes: tuple[str, ...]
    shape: tuple[int, ...]
    optional: bool = False


class ServedModel(ABC):
    """One name of the loaded model, with its own tensors."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    text_input: str

    def __init__(self, name: str, sample_rate: int) -> None:
        self.name, self.sample_rate = name, sample_rate

    @abstractmethod
    def wish(self, inputs: Mapping[str, Tensor], stream: bool) -> SpeechWish:
        """What the checked inputs ask for. Raises ApiError."""

    @abstractmethod
    def audio(self, inputs: Mapping[str, Tensor]) -> AudioTensor:
        """The form of the answer's audio. Raises ApiError unsupported_format."""

    def check(self, inputs: Mapping[str, Tensor]) -> None:
        """Raises ApiError for a tensor that is missing, not known, or of another datatype."""
        specs = {spec.name: spec for spec in self.inputs}
        for name, tensor in inputs.items():
            if name not in specs:
                known = ", ".join(specs)
                raise ApiError(400, "unknown_tensor", f"{self.name!r} has no input {name!r}; it has {known}.", name)
            if tensor.datatype not in specs[name].datatypes:
                wanted = " or ".join(specs[name].datatypes)
                raise ApiError(400, "invalid_tensor", f"Tensor {name!r} must be {wanted}, not {tensor.datatype}.", name)
        for spec in self.inputs:
            if not spec.optional and spec.name not in inputs:
                raise ApiError(400, "missing_tensor", f"The input {spec.name!r} is required.", spec.name)


class SpeechModel(ServedModel):
    """The server's own tensors: the fields of the speech API that most requests have."""

    text_input = "text"
    inputs = (
        TensorSpec("text", (BYTES,), (1,)),
        TensorSpec("voice", (BYTES,), (1,), optional=True),
        TensorSpec("ref_audio", ("UINT8", BYTES, "FP32"), (-1,), optional=True),
        TensorSpec("ref_sample_rate", ("INT32", "INT64"), (1,), optional=True),
        TensorSpec("ref_text", (BYTES,), (1,), optional=True),
        TensorSpec("instructions", (BYTES,), (1,), optional=True),
        TensorSpec("speed", ("FP32", "FP64"), (1,), optional=True),
        TensorSpec("seed", ("INT64", "INT32"), (1,), optional=True),
        TensorSpec("format", (BYTES,), (1,), optional=True),
    )
    outputs = (
        TensorSpec("audio", ("UINT8", "INT16", "FP32", BYTES), (-1,)),
        TensorSpec("sample_rate", ("INT32",), (1,)),
    )

    def wish(self, inputs: Mapping[str, Tensor], stream: bool) -> SpeechWish:
        speed, seed = _number(inputs, "speed"), _number(inputs, "seed")
        return SpeechWish(
            text=_required_text(inputs, "text"),
            voice=_text(inputs, "voice"),
            speed=speed if speed is not None else 1.0,
            seed=int(seed) if seed is not None else None,
            instructions=_text(inputs, "instructions"),
            ref_audio=self._reference(inputs),
            ref_text=_text(inputs, "ref_text"),
            stream=stream,
        )

    def audio(self, inputs: Mapping[str, Tensor]) -> AudioTensor:
        return AudioTensor(_text(inputs, "format") or "wav", self.sample_rate)

    @staticmethod
    def _reference(inputs: Mapping[str, Tensor]) -> Reference | None:
        tensor, rate = inputs.get("ref_audio"), _number(inputs, "ref_sample_rate")
        if rate is not None and (tensor is None or tensor.datatype != "FP32"):
            message = "ref_sample_rate goes with ref_audio as FP32 samples; a sound file has its own."
            raise ApiError(400, "invalid_value", message, "ref_sample_rate")
        if tensor is None:
            return None
        if tensor.datatype == BYTES:
            return reference_from_text(_required_text(inputs, "ref_audio"))
        if tensor.datatype == "UINT8":
            return np.asarray(tensor.data).tobytes()
        return _samples(tensor, int(rate) if rate is not None else REFERENCE_RATE)


class UpstreamModel(ServedModel):
    """The tensors of upstream's Triton deployment, for clients that were written for it."""

    text_input = "target_text"
    inputs = (
        TensorSpec("reference_wav", ("FP32",), (1, -1), optional=True),
        TensorSpec("reference_wav_len", ("INT32",), (1, 1), optional=True),
        TensorSpec("reference_text", (BYTES,), (1, 1), optional=True),
        TensorSpec("target_text", (BYTES,), (1, 1)),
    )
    outputs = (TensorSpec("waveform", ("FP32",), (1, -1)),)

    def wish(self, inputs: Mapping[str, Tensor], stream: bool) -> SpeechWish:
        reference = self._reference(inputs)
        transcript = _text(inputs, "reference_text") or None  # upstream's client sends "" for none
        if transcript and reference is None:
            message = "reference_text is the transcript of reference_wav, which is missing."
            raise ApiError(400, "missing_tensor", message, "reference_wav")
        return SpeechWish(
            text=_required_text(inputs, "target_text"), ref_audio=reference, ref_text=transcript, stream=stream
        )

    def audio(self, inputs: Mapping[str, Tensor]) -> AudioTensor:
        return AudioTensor(FLOAT32, self.sample_rate, "waveform", batched=True)

    @staticmethod
    def _reference(inputs: Mapping[str, Tensor]) -> Audio | None:
        tensor, length = inputs.get("reference_wav"), _number(inputs, "reference_wav_len")
        if tensor is None:
            if length is not None:
                message = "reference_wav_len is the length of reference_wav, which is missing."
                raise ApiError(400, "missing_tensor", message, "reference_wav")
            return None
        audio = _samples(tensor, REFERENCE_RATE)
        if length is None:
            return audio
        if not 0 <= length <= len(audio.samples):
            message = f"reference_wav_len is {length}, but reference_wav has {len(audio.samples):,} samples."
            raise ApiError(400, "invalid_tensor", message, "reference_wav_len")
        return Audio(audio.samples[: int(length)], REFERENCE_RATE)  # what follows is padding


def served_models(info: ModelInfo) -> tuple[ServedModel, ...]:
    """The loaded model under its own name, and under upstream's."""
    return SpeechModel(own_name(info), info.sample_rate), UpstreamModel(upstream_name(info), info.sample_rate)


def reference_from_text(text: str) -> str:
    """A data URL from a data URL or from base64 alone, which never has a colon."""
    return text if ":" in text else _BASE64_URL + text


def _samples(tensor: Tensor, rate: int) -> Audio:
    if any(size != 1 for size in tensor.shape[:-1]):
        raise ApiError(400, "invalid_tensor", f"Tensor {tensor.name!r} must be mono: shape [N] or [1, N].", tensor.name)
    if not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
        message = f"The sample rate must be from {MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE} Hz, not {rate}."
        raise ApiError(400, "ref_audio_sample_rate", message, tensor.name)
    return Audio(np.asarray(tensor.data, np.float32), rate)


def _single(tensor: Tensor) -> bytes | np.generic:
    if len(tensor.data) != 1:
        message = f"Tensor {tensor.name!r} must have 1 element, not {len(tensor.data):,}: send a request for each."
        raise ApiError(400, "invalid_tensor", message, tensor.name)
    return tensor.data[0]


def _text(inputs: Mapping[str, Tensor], name: str) -> str | None:
    if name not in inputs:
        return None
    return _required_text(inputs, name)


def _required_text(inputs: Mapping[str, Tensor], name: str) -> str:
    value = _single(inputs[name])
    assert isinstance(value, bytes), "`check` has seen the datatype"
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ApiError(400, "input_not_utf8", f"Tensor {name!r} is not valid UTF-8.", name) from None


def _number(inputs: Mapping[str, Tensor], name: str) -> float | None:
    if name not in inputs:
        return None
    value = _single(inputs[name])
    if isinstance(value, np.floating):
        return float(str(value))  # FP32 has no exact 0.7: the shortest decimal is what the client wrote
    return int(value)
