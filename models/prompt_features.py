"""Turn reference audio into a voice's conditioning: speech tokens, x-vector and prompt mel, one clip at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from audio.resample import resample
from models.conditioning import Conditioning
from models.config import ModelConfig
from models.errors import ModelError
from models.features import PROMPT_RATE, kaldi_fbank, prompt_mel, whisper_log_mel

SPEAKER_ENCODER = "campplus.onnx"
PREFERRED_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
MIN_SECONDS = 0.1
"""Below this some feature has no frame at all; what makes a usable voice is the caller's business."""
MAX_SECONDS = 30.0
"""The longest clip the speech tokenizer accepts, as upstream asserts."""


def available_providers() -> list[str]:
    """onnxruntime's execution providers that are used here and present, the fastest first."""
    present = onnxruntime.get_available_providers()
    return [provider for provider in PREFERRED_PROVIDERS if provider in present]


@dataclass(frozen=True)
class PromptModels:
    """The two ONNX networks that read reference audio, and the front end's settings.

    Clips are encoded one by one, because every feature is normalised over its own utterance; calls from several
    threads at once are fine (onnxruntime sessions allow concurrent runs).
    """

    config: ModelConfig
    tokenizer: onnxruntime.InferenceSession
    speaker: onnxruntime.InferenceSession

    @classmethod
    def load(cls, config: ModelConfig, providers: Sequence[str] | None = None, *, threads: int = 1) -> PromptModels:
        """Open `speech_tokenizer_v{2,3}.onnx` and `campplus.onnx` of the model folder.

        `providers` defaults to `available_providers()`; `threads` is onnxruntime's intra-op thread count. Raises
        ModelError: model_file_missing, checkpoint_unreadable.
        """
        chosen = list(available_providers() if providers is None else providers)
        return cls(
            config,
            _open(config.root / f"speech_tokenizer_v{config.version}.onnx", 2, chosen, threads),
            _open(config.root / SPEAKER_ENCODER, 1, chosen, threads),
        )

    @torch.inference_mode()
    def encode(self, samples: np.ndarray, sample_rate: int, *, align: bool = True) -> Conditioning:
        """The conditioning of one voice; its `prompt_text_ids` are empty.

        samples: [L] float32 mono, full scale 1.0, 0.1 to 30 s. With `align` tokens and mel are cut to the same
        time, `token_mel_ratio` frames per token, as upstream's zero-shot front end does; without it they stay
        whole, as in upstream's voice conversion. Raises ModelError model_input_invalid.
        """
        wav16k = self._at_prompt_rate(samples, sample_rate)
        wav = torch.tensor(resample(samples, sample_rate, self.config.mel.sampling_rate))
        mel = prompt_mel(wav, self.config.mel).numpy()
        tokens = self._tokens(wav16k)
        if align:
            ratio = self.config.token_mel_ratio
            kept = min(len(mel) // ratio, len(tokens))
            tokens, mel = tokens[:kept], mel[: kept * ratio]
        return Conditioning(
            embedding=self._x_vector(wav16k),
            prompt_tokens=np.ascontiguousarray(tokens),
            prompt_mel=np.ascontiguousarray(mel),
        )

    @torch.inference_mode()
    def speech_tokens(self, samples: np.ndarray, sample_rate: int) -> np.ndarray:
        """What is said, without who says it: the source of a voice conversion.

        samples: [L] float32 mono, 0.1 to 30 s. Returns [T] int32, 25 tokens per second, not aligned to any mel.
        Raises ModelError model_input_invalid.
        """
        return self._tokens(self._at_prompt_rate(samples, sample_rate))

    def _at_prompt_rate(self, samples: np.ndarray, sample_rate: int) -> torch.Tensor:
        """Check the clip and bring it to [1, L] at 16 kHz."""
        if samples.ndim != 1:
            raise ModelError("model_input_invalid", f"audio must be mono [L], not {list(samples.shape)}")
        if sample_rate < PROMPT_RATE:
            raise ModelError("model_input_invalid", f"audio must have 16000 Hz or more, not {sample_rate}")
        seconds = samples.size / sample_rate
        if not MIN_SECONDS <= seconds <= MAX_SECONDS:
            raise ModelError(
                "model_input_invalid",
                f"audio must last {MIN_SECONDS:g} to {MAX_SECONDS:g} s, not {seconds:.2f} s",
            )
        if not np.isfinite(samples).all():
            raise ModelError("model_input_invalid", "audio must not hold NaN or infinite samples")
        return torch.tensor(resample(samples, sample_rate, PROMPT_RATE)).unsqueeze(0)

    def _tokens(self, wav16k: torch.Tensor) -> np.ndarray:
        features = whisper_log_mel(wav16k).numpy()
        length = np.array([features.shape[2]], dtype=np.int32)
        return _run(self.tokenizer, features, length).astype(np.int32)

    def _x_vector(self, wav16k: torch.Tensor) -> np.ndarray:
        vector = _run(self.speaker, kaldi_fbank(wav16k).unsqueeze(0).numpy())
        if vector.size != self.config.spk_embed_dim:
            raise ModelError(
                "checkpoint_shape",
                f"{SPEAKER_ENCODER} gives {vector.size} values, the flow takes {self.config.spk_embed_dim}",
            )
        return vector


def _open(path: Path, inputs: int, providers: list[str], threads: int) -> onnxruntime.InferenceSession:
    if not path.is_file():
        raise ModelError("model_file_missing", f"{path} is missing; reference audio needs it")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors only: warnings about constant folding tell an operator nothing
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime raises a type of its own for every way a file can be wrong
        raise ModelError("checkpoint_unreadable", f"{path} cannot be opened: {error}") from error
    if (found := len(session.get_inputs())) != inputs:
        raise ModelError("checkpoint_unreadable", f"{path} takes {found} inputs instead of {inputs}")
    return session


def _run(session: onnxruntime.InferenceSession, *inputs: Any) -> np.ndarray:
    """Run a session by its own input names, in their order; its first output, flattened."""
    names = [declared.name for declared in session.get_inputs()]
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0]).reshape(-1)
