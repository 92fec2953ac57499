"""A whole CosyVoice model: text tokenizer, speech language model, flow and vocoder, and its preset voices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from models.conditioning import PRESETS_FILE, Conditioning, load_presets
from models.config import ModelConfig, load_config
from models.errors import ModelError
from models.flow import Flow
from models.hift import Vocoder
from models.speech_lm import SpeechLM
from models.token2wav import Token2Wav
from models.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class CosyVoice:
    """Everything that a model folder in upstream's layout holds, but the networks for prompts (onnx)."""

    config: ModelConfig
    tokenizer: Tokenizer
    lm: SpeechLM
    token2wav: Token2Wav
    presets: Mapping[str, Conditioning]

    @classmethod
    def load(
        cls,
        model: ModelConfig | str | Path,
        *,
        device: torch.device | str = "cpu",
        lm_dtype: torch.dtype = torch.float32,
        flow_dtype: torch.dtype = torch.float32,
        window_seconds: float | None = None,
    ) -> CosyVoice:
        """Load CosyVoice 2 or 3. Everything is copied from the folder's files, which may then change.

        `lm_dtype`, `flow_dtype`: of their matrix products (see SpeechLM.load and Flow.load); the vocoder, whose phase
        adds up, is always float32. `window_seconds`: see Token2Wav. Raises ModelError, with the file and what is wrong
        with it.
        """
        config = model if isinstance(model, ModelConfig) else load_config(model)
        presets = load_presets(config.root / PRESETS_FILE, config)
        tokenizer = Tokenizer.load(config.root, config.version)
        lm = SpeechLM.load(config, dtype=lm_dtype, device=device)
        if len(tokenizer) > lm.text_vocab:
            raise ModelError(
                "checkpoint_shape",
                f"{config.root}: the tokenizer has {len(tokenizer)} entries, the text embedding of llm.pt "
                f"{lm.text_vocab} rows",
            )
        token2wav = Token2Wav(
            config,
            Flow.load(config, dtype=flow_dtype, device=device),
            Vocoder.load(config, device=device),
            window_chunks=None if window_seconds is None else _chunks(window_seconds, config),
        )
        return cls(config, tokenizer, lm, token2wav, presets)


def _chunks(seconds: float, config: ModelConfig) -> int:
    """Of the flow's streaming, at least one."""
    return max(1, round(seconds * config.token_frame_rate / config.chunk_size))
