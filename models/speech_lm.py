"""The language model of CosyVoice 2 and 3: text and prompt speech tokens in, speech tokens out, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.checkpoint import load_strict, read_state_dict
from models.config import ModelConfig
from models.errors import ModelError
from models.kv_cache import KVCache
from models.linear import Linear, linear
from models.qwen2 import Qwen2, Qwen2Config, Span, load_qwen2_config
from models.tokenizer import FOLDER

__all__ = ["KVCache", "SpeechLM"]

LM_FILE = "llm.pt"
_TEXT_HEAD = "llm.model.lm_head.weight"  # Qwen2's own output layer: a quarter of the parameters, never used
_LAYERS = "llm.model.model.layers."
_EOS_FILL = {2: (0, 2), 3: (1, 3)}  # their ids, counted from the first id that is no speech token


class SpeechLM(nn.Module):
    """Qwen2 over [start, text, task, speech]; equal to upstream's Qwen2LM (2) and CosyVoice3LM (3).

    Ids from `speech_token_size` on are no speech: `stop_ids`, of which `eos` is the intended end and `fill`
    asks for more text when text arrives in pieces.
    """

    dtype: torch.dtype
    """That of the layers' products, as it was loaded."""
    _head: Linear

    min_ratio = 2  # speech tokens per text token, at least and
    max_ratio = 20  # at most

    def __init__(self, version: int, backbone: Qwen2Config, vocab: int, speech_token_size: int) -> None:
        super().__init__()
        self.version = version
        self.vocab = vocab
        self.speech_token_size = speech_token_size
        self.stop_ids = range(speech_token_size, vocab)
        # Version 2 keeps start and task in a table of their own; 3 puts them among the special speech ids.
        self.eos, self.fill = (speech_token_size + offset for offset in _EOS_FILL[version])
        if version == 2:
            self.llm_embedding = nn.Embedding(2, backbone.hidden)
        self.llm = nn.ModuleDict({"model": nn.ModuleDict({"model": Qwen2(backbone)})})
        self.llm_decoder = nn.Linear(backbone.hidden, vocab, bias=version == 2)
        self.speech_embedding = nn.Embedding(vocab, backbone.hidden)

    @classmethod
    def load(
        cls, config: ModelConfig, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> SpeechLM:
        """From a model folder. Raises ModelError.

        `dtype`: that of the layers' products: float32, bfloat16 or int8 (models/linear.py). Embeddings and output
        layer are float32 in any case.
        """
        path = config.root / LM_FILE
        backbone = load_qwen2_config(config.root / FOLDER / "config.json")
        speech_token_size = config.llm.get("speech_token_size")
        if not isinstance(speech_token_size, int):
            raise ModelError("model_config_invalid", f"{config.root}: the yaml's llm section has no speech_token_size")
        state = read_state_dict(path)
        state.pop(_TEXT_HEAD, None)
        needed = speech_token_size + max(_EOS_FILL[config.version]) + 1
        table = state.get("speech_embedding.weight")
        vocab = needed if table is None else len(table)
        if vocab < needed:
            raise ModelError(
                "checkpoint_shape",
                f"{path}: speech_embedding.weight has {vocab} rows, but {speech_token_size} speech tokens "
                f"and the special ids need {needed}",
            )
        with torch.device("meta"):
            lm = cls(config.version, backbone, vocab, speech_token_size)
        # The layers and the head are copied one by one when they are packed.
        later = (_LAYERS, "llm_decoder.")
        kept = {key: value if key.startswith(later) else value.clone() for key, value in state.items()}
        load_strict(lm, kept, path)
        lm._pack(state, path, dtype, torch.device(device))
        return lm

    def _pack(self, state: dict[str, Tensor], path: Path, dtype: torch.dtype, device: torch.device) -> None:
        """Make what decoding computes with, in place of the modules as the checkpoint has them."""
        exact = dtype == torch.float32

        def weights(prefix: str) -> dict[str, Tensor]:
            # What is copied is read through a mapping of its own, whose pages leave memory with it.
            source = state if exact and device.type == "cpu" else read_state_dict(path)
            return {key.removeprefix(prefix): value.clone() for key, value in source.items() if key.startswith(prefix)}

        self.dtype = dtype
        self.backbone.pack(lambda index: weights(f"{_LAYERS}{index}."), dtype=dtype, device=device)
        head = weights("llm_decoder.")
        biases = [head["bias"]] if "bias" in head else []
        self._head = linear([head["weight"]], biases, dtype=torch.float32, device=device, rowwise=not exact)
        del self.llm_decoder
        self.to(device, torch.float32)

    @property
    def backbone(self) -> Qwen2:
        return self.llm["model"]["model"]  # type: ignore[index]

    @property
    def text_vocab(self) -> int:
        """Rows of the text embedding: a tokenizer must not be larger."""
        return self.backbone.config.vocab

    def length_limits(self, text_tokens: int) -> tuple[int, int]:
        """Least and most speech tokens for a text (without its prompt) of so many tokens."""
        return int(text_tokens * self.min_ratio), int(text_tokens * self.max_ratio)

    # --- embeddings

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """`[len(ids), hidden]`. Raises ModelError model_input_invalid for an id outside the vocabulary."""
        return F.embedding(self._ids(ids, self.text_vocab, "text token"), self.backbone.embed_tokens.weight)

    def embed_speech(self, ids: Sequence[int]) -> Tensor:
        """`[len(ids), hidden]`. Raises ModelError model_input_invalid for what is no speech token."""
        return F.embedding(self._ids(ids, self.speech_token_size, "speech token"), self.speech_embedding.weight)

    @property
    def start(self) -> Tensor:
        """`[1, hidden]`: what every sequence begins with."""
        return self.llm_embedding.weight[:1] if self.version == 2 else self._special(0)

    @property
    def task(self) -> Tensor:
        """`[1, hidden]`: what separates text from speech."""
        return self.llm_embedding.weight[1:2] if self.version == 2 else self._special(2)

    def _special(self, offset: int) -> Tensor:
        row = self.speech_token_size + offset
        return self.speech_embedding.weight[row : row + 1]

    def _ids(self, ids: Sequence[int], size: int, what: str) -> Tensor:
        tensor = torch.as_tensor(ids, dtype=torch.int64)
        if len(tensor) and not 0 <= int(tensor.min()) <= int(tensor.max()) < size:
            raise ModelError("model_input_invalid", f"a {what} id is outside 0..{size - 1}")
        return tensor.to(self.device)

    @torch.inference_mode()
    def build_input(self, text_ids: Sequence[int], prompt_speech: Sequence[int] = ()) -> Tensor:
        """`[1 + text + 1 + speech, hidden]`; `text_ids`: the prompt's transcript or instruction, then the text."""
        return torch.cat([self.start, self.embed_text(text_ids), self.task, self.embed_speech(prompt_speech)])

    # --- decoding

    def new_cache(self, slots: int = 4) -> KVCache:
        """An empty cache that fits this model."""
        config = self.backbone.config
        dtype = torch.bfloat16 if self.dtype == torch.int8 else self.dtype
        return KVCache(config.layers, config.kv_heads, config.head_dim, slots=slots, dtype=dtype, device=self.device)

    @property
    def device(self) -> torch.device:
        return self.speech_embedding.weight.device

    @torch.inference_mode()
    def extend(self, cache: KVCache, slot: int, inputs: Tensor) -> Tensor:
        """Append `inputs: [N, hidden]` to a sequence (prefill, or later text); log-probs `[vocab]` of the next id."""
        return self._log_probs(self.backbone.prefill(inputs, cache, slot))[0]

    @torch.inference_mode()
    def decode(self, cache: KVCache, tokens: Tensor) -> Tensor:
        """One step of the first B sequences: `tokens: [B]` int64 speech tokens in, log-probs `[B, vocab]` out."""
        span = self.backbone.reserve_step(cache, len(tokens))
        logp = self.step(cache, tokens.to(self.device), span)
        cache.advance_first(len(tokens))
        return logp

    def step(self, cache: KVCache, tokens: Tensor, span: Span) -> Tensor:
        """`decode` on the device alone: `tokens: [B]` there; see `Qwen2.step`."""
        return self._log_probs(self.backbone.step(F.embedding(tokens, self.speech_embedding.weight), cache, span))

    def _log_probs(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).log_softmax(dim=-1)
