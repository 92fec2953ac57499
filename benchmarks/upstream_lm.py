"""The language model in upstream's structure, the baseline of `benchmarks.decode`.

One sequence at a time, in float32, operation by operation as the Hugging Face modules do it: the text head is computed
at every position and thrown away, keys and values are concatenated anew for each token, sampling walks through the
sorted vocabulary in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.checkpoint import read_state_dict
from models.config import ModelConfig, SamplingConfig
from models.qwen2 import load_qwen2_config
from models.speech_lm import LM_FILE
from models.tokenizer import FOLDER

_BODY = "llm.model.model."
_TEXT_HEAD = "llm.model.lm_head.weight"


class UpstreamLM:
    """A folder's llm.pt, its float32 weights memory-mapped as ours are."""

    def __init__(self, config: ModelConfig) -> None:
        self._weights = {key: value.float() for key, value in read_state_dict(config.root / LM_FILE).items()}
        self._config = load_qwen2_config(config.root / FOLDER / "config.json")
        exponents = torch.arange(0, self._config.head_dim, 2, dtype=torch.float32) / self._config.head_dim
        self._rates = 1.0 / self._config.rope_theta**exponents
        self._cache: list[tuple[Tensor, Tensor]] = []

    @torch.inference_mode()
    def prefill(self, inputs: Tensor) -> Tensor:
        """Begin a sequence with `inputs: [N, hidden]`; log-probs `[vocab]` of its first token."""
        self._cache = []
        return self._log_probs(inputs[None])

    @torch.inference_mode()
    def step(self, token: int) -> Tensor:
        """Append a speech token; log-probs `[vocab]` of the next."""
        return self._log_probs(self._weights["speech_embedding.weight"][token].view(1, 1, -1))

    def _log_probs(self, x: Tensor) -> Tensor:
        past = self._cache[0][0].shape[2] if self._cache else 0
        positions = torch.arange(past, past + x.shape[1], dtype=torch.float32)
        angles = torch.outer(positions, self._rates).repeat(1, 2)[None, None]
        rotation = (angles.cos(), angles.sin())
        for index in range(self._config.layers):
            x = x + self._attention(index, self._norm(x, f"layers.{index}.input_layernorm"), rotation)
            h = self._norm(x, f"layers.{index}.post_attention_layernorm")
            mlp = f"layers.{index}.mlp."
            h = F.silu(self._linear(h, mlp + "gate_proj")) * self._linear(h, mlp + "up_proj")
            x = x + self._linear(h, mlp + "down_proj")
        hidden = self._norm(x, "norm")
        F.linear(hidden, self._weights[_TEXT_HEAD])  # never used
        logits = F.linear(hidden[0, -1], self._weights["llm_decoder.weight"], self._weights.get("llm_decoder.bias"))
        return logits.log_softmax(dim=-1)

    def _attention(self, index: int, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        def heads(name: str) -> Tensor:
            y = self._linear(x, f"layers.{index}.self_attn.{name}_proj")
            return y.view(1, x.shape[1], -1, self._config.head_dim).transpose(1, 2)

        q, k, v = _rotate(heads("q"), rotation), _rotate(heads("k"), rotation), heads("v")
        first = index == len(self._cache)
        if first:
            self._cache.append((k, v))
        else:
            before = self._cache[index]
            k, v = torch.cat((before[0], k), dim=2), torch.cat((before[1], v), dim=2)
            self._cache[index] = (k, v)
        group = self._config.heads // self._config.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=first and x.shape[1] > 1)
        return self._linear(mixed.transpose(1, 2).reshape(1, x.shape[1], -1), f"layers.{index}.self_attn.o_proj")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self._weights[f"{_BODY}{name}.weight"], self._weights.get(f"{_BODY}{name}.bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        return self._weights[f"{_BODY}{name}.weight"] * (x * torch.rsqrt(variance + self._config.rms_eps))


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def walk_sample(
    logp: Tensor, history: Sequence[int], config: SamplingConfig, generator: torch.Generator | None = None
) -> int:
    """Repetition-aware sampling of `logp: [V]`, one id of the sorted vocabulary after the other."""
    values, ids = logp.softmax(dim=0).sort(descending=True, stable=True)
    nucleus: list[Tensor] = []
    total = torch.tensor(0.0)
    for value in values:
        if not (total < config.top_p and len(nucleus) < config.top_k):
            break
        total = total + value
        nucleus.append(value)
    token = int(ids[torch.stack(nucleus).multinomial(1, generator=generator)])
    recent = torch.tensor(list(history[-config.win_size :]), dtype=torch.int64)
    if int((recent == token).sum()) >= config.win_size * config.tau_r:
        logp = logp.clone()
        logp[token] = -torch.inf
        token = int(logp.softmax(dim=0).multinomial(1, generator=generator))
    return token
