"""A voice as the networks see it: x-vector, prompt speech tokens, prompt mel, prompt text; numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from models.config import ModelConfig
from models.errors import ModelError

PRESETS_FILE = "spk2info.pt"


@dataclass(frozen=True, eq=False)
class Conditioning:
    """What one voice puts into LM and flow. A preset made without reference audio has only its x-vector."""

    embedding: np.ndarray  # [192] float32, x-vector
    prompt_tokens: np.ndarray  # [P] int32 speech tokens, aligned with the mel; may be empty
    prompt_mel: np.ndarray  # [M, 80] float32, ln magnitude; may be empty
    prompt_text_ids: tuple[int, ...] = ()  # transcript of the prompt; empty: cross-lingual or preset

    def to_bytes(self) -> bytes:
        """As a safetensors file."""
        arrays = {
            "embedding": np.ascontiguousarray(self.embedding, np.float32),
            "prompt_tokens": np.ascontiguousarray(self.prompt_tokens, np.int32),
            "prompt_mel": np.ascontiguousarray(self.prompt_mel, np.float32),
            "prompt_text_ids": np.asarray(self.prompt_text_ids, np.int32),
        }
        return safetensors.numpy.save(arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Conditioning:
        """The inverse of `to_bytes`. Raises ModelError preset_invalid."""
        try:
            arrays = safetensors.numpy.load(data)
            embedding, tokens, mel, text_ids = (_checked(arrays[name], *form) for name, form in _FORMS.items())
        except Exception as error:  # whatever a damaged file makes of its reader
            raise ModelError("preset_invalid", f"this is no saved voice: {error}") from error
        return cls(embedding, tokens, mel, tuple(text_ids.tolist()))


_FORMS: Mapping[str, tuple[type, int]] = {
    "embedding": (np.float32, 1),
    "prompt_tokens": (np.int32, 1),
    "prompt_mel": (np.float32, 2),
    "prompt_text_ids": (np.int32, 1),
}
"""Type and number of dimensions of what `to_bytes` writes."""


def _checked(array: np.ndarray, dtype: type, dimensions: int) -> np.ndarray:
    if array.dtype != dtype or array.ndim != dimensions:
        raise ValueError(f"{array.dtype} of {array.ndim} dimensions is not what it should hold")
    if not np.isfinite(array).all():
        raise ValueError("it holds values that are not finite")
    return array


def load_presets(path: str | Path, config: ModelConfig) -> dict[str, Conditioning]:
    """The voices of a `spk2info.pt` by name; {} when the file is absent (it is optional).

    Takes both kinds of upstream's records: an x-vector alone (`embedding`), and a saved zero-shot speaker
    (the whole front-end output but the text). Raises ModelError: checkpoint_unreadable, preset_invalid.
    """
    path = Path(path)
    if not path.is_file():
        return {}
    import torch

    from models.checkpoint import why_unreadable

    try:
        table = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # whatever a damaged file makes of the unpickler
        raise ModelError("checkpoint_unreadable", f"{path} cannot be read: {why_unreadable(path, error)}") from error
    if not isinstance(table, dict):
        raise ModelError("checkpoint_unreadable", f"{path} holds no table of voices")
    voices = {}
    for name, record in table.items():
        try:
            voices[str(name)] = _conditioning(record, config)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            detail = f"no entry {error}" if isinstance(error, KeyError) else str(error)
            raise ModelError("preset_invalid", f"{path}: voice {name!r}: {detail}") from error
    return voices


def _conditioning(record: Mapping[str, Any], config: ModelConfig) -> Conditioning:
    mels = config.mel.num_mels
    if "embedding" in record:  # a preset of supervised fine-tuning
        return Conditioning(
            embedding=_x_vector(record["embedding"], config),
            prompt_tokens=np.zeros(0, np.int32),
            prompt_mel=np.zeros((0, mels), np.float32),
        )
    tokens = _array(record["flow_prompt_speech_token"], np.int32).reshape(-1)
    mel = _array(record["prompt_speech_feat"], np.float32).reshape(-1, mels)
    if len(mel) != config.token_mel_ratio * len(tokens):
        raise ValueError(f"{len(tokens)} prompt tokens do not go with {len(mel)} mel frames")
    if not np.array_equal(tokens, _array(record["llm_prompt_speech_token"], np.int32).reshape(-1)):
        raise ValueError("the prompt tokens of LM and flow differ")
    return Conditioning(
        embedding=_x_vector(record["flow_embedding"], config),
        prompt_tokens=tokens,
        prompt_mel=mel,
        prompt_text_ids=tuple(_array(record["prompt_text"], np.int32).reshape(-1).tolist()),
    )


def _x_vector(value: Any, config: ModelConfig) -> np.ndarray:
    embedding = _array(value, np.float32).reshape(-1)
    if len(embedding) != config.spk_embed_dim:
        raise ValueError(f"its x-vector has {len(embedding)} values, the model's have {config.spk_embed_dim}")
    return embedding


def _array(value: Any, dtype: type) -> np.ndarray:
    return np.ascontiguousarray(value.float().numpy() if dtype is np.float32 else value.numpy(), dtype)
