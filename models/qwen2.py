"""The Qwen2 decoder (Qwen2 technical report, 2024) without its text head, over a shared key-value cache.

Parameter names are those of Hugging Face's Qwen2Model, and so are the results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.errors import ModelError
from models.kv_cache import KVCache
from models.linear import Linear, linear

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q `[N, heads, head_dim]`, k and v `[N, kv_heads, head_dim]`) -> `[N, heads * head_dim]`."""


_BLOCK = 16
"""In half precision keys are looked at in blocks of so many: then sums do not depend on how long a neighbour is."""


@dataclass(frozen=True)
class Span:
    """The positions that a step looks at: those below `stop`. `ragged`: some sequences end before."""

    stop: int
    ragged: bool = True


@dataclass(frozen=True)
class Qwen2Config:
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    rms_eps: float
    rope_theta: float


def load_qwen2_config(path: Path) -> Qwen2Config:
    """From a Hugging Face `config.json`. Raises ModelError: model_file_missing, model_config_invalid."""
    if not path.is_file():
        raise ModelError("model_file_missing", f"{path} is missing")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        hidden, heads = int(data["hidden_size"]), int(data["num_attention_heads"])
        return Qwen2Config(
            hidden=hidden,
            intermediate=int(data["intermediate_size"]),
            layers=int(data["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(data.get("num_key_value_heads", heads)),
            head_dim=int(data.get("head_dim") or hidden // heads),
            vocab=int(data["vocab_size"]),
            rms_eps=float(data["rms_norm_eps"]),
            rope_theta=float(data["rope_theta"]),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        detail = f"no value for {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError("model_config_invalid", f"{path}: {detail}") from error


class Qwen2(nn.Module):
    """Token embeddings and decoder layers. `[N, hidden]` in, `[N, hidden]` out, N positions of any sequences.

    Between the layers everything is float32, whatever the precision of their products.
    """

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=config.rms_eps)

    def pack(
        self, weights: Callable[[int], Mapping[str, Tensor]], *, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        """Make what a step computes with, in place of the layers as the checkpoint has them.

        `weights`: the tensors of a layer, by its parameters' names; none is kept where `linear` copies. Raises
        ModelError precision_unsupported.
        """
        count = len(self.layers)
        self.layers = nn.ModuleList()
        self._operands = _Operands(self.config, self.norm.weight, device)
        self._operands.layers = [self._operands.layer(weights(index), dtype) for index in range(count)]

    def prefill(self, x: Tensor, cache: KVCache, slot: int) -> Tensor:
        """Append `x: [N, hidden]` to the sequence in `slot`; output of its last position, `[1, hidden]`."""
        start, count = cache.lengths[slot], len(x)
        stop = start + count
        cache.reserve(stop)
        self._operands.prepare(stop)
        heads, kv_heads, size = self.config.heads, self.config.kv_heads, self.config.head_dim
        positions = torch.arange(stop, device=x.device)
        mask = None
        if start and count > 1:  # SDPA's own causal mask is aligned to the first key
            mask = torch.zeros(count, stop, dtype=cache.dtype, device=x.device)
            mask.masked_fill_(positions > positions[start:, None], -torch.inf)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = cache.keys[layer][slot], cache.values[layer][slot]
            keys[:, start:stop] = k.transpose(0, 1)
            values[:, start:stop] = v.transpose(0, 1)
            # Each key-value head serves a group of query heads.
            grouped = (kv_heads, heads // kv_heads, stop, size)
            mixed = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None],
                keys[:, None, :stop].expand(grouped).reshape(1, heads, stop, size),
                values[:, None, :stop].expand(grouped).reshape(1, heads, stop, size),
                attn_mask=mask,
                is_causal=not start and count > 1,
            )
            return mixed[0].transpose(0, 1).reshape(count, heads * size)

        x = self._run(x, positions[start:], cache.dtype, attend)
        cache.advance(slot, count)
        return x[-1:]

    def reserve_step(self, cache: KVCache, count: int) -> Span:
        """Make room for one more position of the first `count` sequences, and say what `step` has to look at."""
        lengths = cache.lengths[:count]
        longest = max(lengths) + 1
        cache.reserve(longest)
        self._operands.prepare(cache.capacity)
        block = 1 if cache.dtype == torch.float32 else _BLOCK
        stop = min(-(-longest // block) * block, cache.capacity)
        return Span(stop, ragged=min(lengths) + 1 < stop)

    def step(self, x: Tensor, cache: KVCache, span: Span) -> Tensor:
        """One position `x: [B, hidden]` for each of the first B sequences; `[B, hidden]`.

        Operations on tensors only, whose shapes B and `span` determine: what a CUDA graph can hold. Room must have been
        reserved, and `cache.advance_first` is to follow.
        """
        count, stop = len(x), span.stop
        heads, kv_heads, size = self.config.heads, self.config.kv_heads, self.config.head_dim
        rows, positions = cache.rows(count), cache.next_positions(count)
        mask = self._operands.mask(positions, stop, cache.dtype) if span.ragged else None

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            # With one query per sequence, the query heads of a group are so many queries of their key-value head.
            mixed = F.scaled_dot_product_attention(
                q.view(count, kv_heads, heads // kv_heads, size),
                keys[:count, :, :stop],
                values[:count, :, :stop],
                attn_mask=mask,
            )
            return mixed.reshape(count, heads * size)

        return self._run(x, positions, cache.dtype, attend)

    def _run(self, x: Tensor, positions: Tensor, cache_dtype: torch.dtype, attend: Attend) -> Tensor:
        operands = self._operands
        rounded = cache_dtype != torch.float32
        rotation = operands.rotation(positions)
        heads, turned = self.config.heads, self.config.heads + self.config.kv_heads
        shape = (len(x), -1, self.config.head_dim)
        for index, layer in enumerate(operands.layers):
            qkv = layer.qkv(operands.rms_norm(x, layer.attention_norm)).view(shape)
            qk, v = torch.bmm(qkv[:, :turned], rotation), qkv[:, turned:]
            if rounded:  # a conversion to the type that is there already would take as long as a small product
                qk, v = qk.to(cache_dtype), v.to(cache_dtype)
            x = layer.o(attend(index, qk[:, :heads], qk[:, heads:], v), x)
            gate, up = layer.gate_up(operands.rms_norm(x, layer.mlp_norm)).chunk(2, dim=1)
            x = layer.down(F.silu(gate).mul_(up), x)
        return operands.rms_norm(x, operands.norm)


class _Layer(nn.Module):
    """Only the parameters of one layer, by Hugging Face's names: what a checkpoint must hold."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        hidden, size = config.hidden, config.head_dim
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(hidden, config.heads * size),
                "k_proj": nn.Linear(hidden, config.kv_heads * size),
                "v_proj": nn.Linear(hidden, config.kv_heads * size),
                "o_proj": nn.Linear(config.heads * size, hidden, bias=False),
            }
        )
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(hidden, config.intermediate, bias=False),
                "up_proj": nn.Linear(hidden, config.intermediate, bias=False),
                "down_proj": nn.Linear(config.intermediate, hidden, bias=False),
            }
        )
        self.input_layernorm = nn.RMSNorm(hidden, eps=config.rms_eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=config.rms_eps)


@dataclass(frozen=True)
class _LayerOperands:
    """One layer as `_run` computes with it."""

    attention_norm: Tensor
    qkv: Linear
    o: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class _Operands:
    """What a step computes with, looked up once: going through modules takes as long as a small model's products."""

    layers: list[_LayerOperands]

    def __init__(self, config: Qwen2Config, norm: Tensor, device: torch.device | str) -> None:
        half = torch.arange(config.head_dim // 2)
        self._device = torch.device(device)
        self._scale = math.sqrt(config.hidden)
        self._epsilon = torch.tensor(math.sqrt(config.hidden * config.rms_eps), device=device)
        self._theta = config.rope_theta
        self._size = config.head_dim
        first, second = half * self._size, (half + len(half)) * self._size  # rows of a flattened matrix
        places = (first + half, second + half + len(half), first + half + len(half), second + half)
        self._places = torch.cat(places).to(device)
        self._turns = torch.empty(0)
        self._indices = torch.empty(0)
        self._unseen = torch.tensor(-torch.inf, device=device)
        self._seen = torch.tensor(0.0, device=device)
        self.norm = self._norm(norm)

    def layer(self, weights: Mapping[str, Tensor], dtype: torch.dtype) -> _LayerOperands:
        def product(block: str, *names: str) -> Linear:
            keys = [f"{block}.{name}_proj" for name in names]
            biases = [weights[f"{key}.bias"] for key in keys if f"{key}.bias" in weights]
            return linear([weights[f"{key}.weight"] for key in keys], biases, dtype=dtype, device=self._device)

        return _LayerOperands(
            attention_norm=self._norm(weights["input_layernorm.weight"]),
            qkv=product("self_attn", "q", "k", "v"),
            o=product("self_attn", "o"),
            mlp_norm=self._norm(weights["post_attention_layernorm.weight"]),
            gate_up=product("mlp", "gate", "up"),
            down=product("mlp", "down"),
        )

    def _norm(self, weight: Tensor) -> Tensor:
        return weight.detach().to(self._device, torch.float32) * self._scale

    def rms_norm(self, x: Tensor, scaled_weight: Tensor) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * weight in float32, with sqrt(hidden) taken out of the root: four operations."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return (x / torch.hypot(length, self._epsilon)).mul_(scaled_weight)

    def prepare(self, stop: int) -> None:
        """Make ready for positions below `stop`."""
        if len(self._turns) < stop:
            count = max(512, 2 * stop)
            self._turns = self._angles(count).to(self._device)
            self._indices = torch.arange(count, device=self._device)

    def mask(self, positions: Tensor, stop: int, dtype: torch.dtype) -> Tensor:
        """`[B, 1, 1, stop]`: -inf for the keys after each position."""
        after = self._indices[:stop] > positions[:, None]
        return torch.where(after, self._unseen, self._seen).to(dtype)[:, None, None]

    def rotation(self, positions: Tensor) -> Tensor:
        """`[N, head_dim, head_dim]`: the rotary embedding (RoFormer, Su et al. 2021) as matrices.

        They turn the pairs (i, i + half) of a head; as one product it takes a fourth of the time that slicing
        takes.
        """
        size = self._size
        matrices = self._turns.new_zeros(len(positions), size * size)
        return matrices.index_copy_(1, self._places, self._turns[positions]).view(-1, size, size)

    def _angles(self, count: int) -> Tensor:
        """`[count, 2 * head_dim]`: the cosines and sines of each position, as they go to `_places`."""
        rate = 1.0 / self._theta ** (torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        angle = torch.outer(torch.arange(count, dtype=torch.float32), rate)
        return torch.cat([angle.cos(), angle.cos(), angle.sin(), -angle.sin()], dim=1)
