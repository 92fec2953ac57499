"""The Qwen2 decoder (Qwen2 technical report, 2024) without its text head, over a shared key-value cache.

Parameter names are those of Hugging Face's Qwen2Model, and so are the results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.errors import ModelError
from models.kv_cache import KVCache

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q `[N, heads, head_dim]`, k and v `[N, kv_heads, head_dim]`) -> `[N, heads * head_dim]`."""


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
    """Token embeddings and decoder layers. `[N, hidden]` in, `[N, hidden]` out, N positions of any sequences."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=config.rms_eps)
        self._operands: _Operands | None = None

    def prefill(self, x: Tensor, cache: KVCache, slot: int) -> Tensor:
        """Append `x: [N, hidden]` to the sequence in `slot`; output of its last position, `[1, hidden]`."""
        start, count = cache.lengths[slot], len(x)
        stop = start + count
        cache.reserve(stop)
        heads, kv_heads, size = self.config.heads, self.config.kv_heads, self.config.head_dim
        positions = torch.arange(stop, device=x.device)
        mask = None
        if start and count > 1:  # SDPA's own causal mask is aligned to the first key
            mask = x.new_zeros(count, stop).masked_fill_(positions > positions[start:, None], -torch.inf)

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

        x = self._run(x, positions[start:], stop, attend)
        cache.advance(slot, count)
        return x[-1:]

    def decode(self, x: Tensor, cache: KVCache) -> Tensor:
        """One position `x: [B, hidden]` for each of the first B sequences; output `[B, hidden]`."""
        count = len(x)
        lengths = cache.lengths[:count]
        longest = max(lengths) + 1
        cache.reserve(longest)
        heads, kv_heads, size = self.config.heads, self.config.kv_heads, self.config.head_dim
        rows, positions = cache.rows(count), cache.next_positions(count)
        mask = None
        if min(lengths) + 1 < longest:
            unseen = torch.arange(longest, device=x.device) > positions[:, None]
            mask = x.new_zeros(count, 1, 1, longest).masked_fill_(unseen[:, None, None], -torch.inf)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = cache.keys[layer], cache.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            # With one query per sequence, the query heads of a group are so many queries of their key-value head.
            mixed = F.scaled_dot_product_attention(
                q.view(count, kv_heads, heads // kv_heads, size),
                keys[:count, :, :longest],
                values[:count, :, :longest],
                attn_mask=mask,
            )
            return mixed.reshape(count, heads * size)

        x = self._run(x, positions, longest, attend)
        cache.advance_first(count)
        return x

    def _run(self, x: Tensor, positions: Tensor, stop: int, attend: Attend) -> Tensor:
        if self._operands is None:
            self._operands = _Operands(self)
        operands = self._operands
        rotation = operands.rotation(positions, stop)
        shape = (len(x), -1, self.config.head_dim)
        for index, layer in enumerate(operands.layers):
            h = operands.rms_norm(x, layer.attention_norm)
            q = torch.bmm(F.linear(h, layer.q, layer.q_bias).view(shape), rotation)
            k = torch.bmm(F.linear(h, layer.k, layer.k_bias).view(shape), rotation)
            v = F.linear(h, layer.v, layer.v_bias).view(shape)
            x = torch.addmm(x, attend(index, q, k, v), layer.o)
            h = operands.rms_norm(x, layer.mlp_norm)
            x = torch.addmm(x, F.silu(F.linear(h, layer.gate), inplace=True).mul_(F.linear(h, layer.up)), layer.down)
        return operands.rms_norm(x, operands.norm)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Qwen2:
        self._operands = None  # they refer to weights that are about to move
        return super()._apply(fn, recurse)


class _Layer(nn.Module):
    """Only the parameters of one layer, by Hugging Face's names; `Qwen2._run` computes with them."""

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
    """One layer's weights as `_run` uses them: views of the parameters, `o` and `down` transposed."""

    attention_norm: Tensor
    q: Tensor
    q_bias: Tensor
    k: Tensor
    k_bias: Tensor
    v: Tensor
    v_bias: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class _Operands:
    """What a step computes with, looked up once: going through modules takes as long as a small model's products."""

    def __init__(self, model: Qwen2) -> None:
        config = model.config
        device, half = model.norm.weight.device, torch.arange(config.head_dim // 2)
        self._dtype = model.norm.weight.dtype
        self._scale = math.sqrt(config.hidden)
        self._epsilon = torch.tensor(math.sqrt(config.hidden * config.rms_eps), device=device)
        self._theta = config.rope_theta
        self._size = config.head_dim
        first, second = half * self._size, (half + len(half)) * self._size  # rows of a flattened matrix
        places = (first + half, second + half + len(half), first + half + len(half), second + half)
        self._places = torch.cat(places).to(device)
        self._turns: Tensor | None = None
        self.layers = [self._of(layer) for layer in model.layers]
        self.norm = self._norm(model.norm.weight)

    def _norm(self, weight: Tensor) -> Tensor:
        return weight.detach().float() * self._scale

    def _of(self, layer: nn.Module) -> _LayerOperands:
        p = {name: tensor.detach() for name, tensor in layer.named_parameters()}
        return _LayerOperands(
            attention_norm=self._norm(p["input_layernorm.weight"]),
            q=p["self_attn.q_proj.weight"],
            q_bias=p["self_attn.q_proj.bias"],
            k=p["self_attn.k_proj.weight"],
            k_bias=p["self_attn.k_proj.bias"],
            v=p["self_attn.v_proj.weight"],
            v_bias=p["self_attn.v_proj.bias"],
            o=p["self_attn.o_proj.weight"].t(),
            mlp_norm=self._norm(p["post_attention_layernorm.weight"]),
            gate=p["mlp.gate_proj.weight"],
            up=p["mlp.up_proj.weight"],
            down=p["mlp.down_proj.weight"].t(),
        )

    def rms_norm(self, x: Tensor, scaled_weight: Tensor) -> Tensor:
        """x / sqrt(mean(x^2) + eps) * weight in float32, with sqrt(hidden) taken out of the root: four operations."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return (x / torch.hypot(length, self._epsilon)).mul_(scaled_weight).to(x.dtype)

    def rotation(self, positions: Tensor, stop: int) -> Tensor:
        """`[N, head_dim, head_dim]`: the rotary embedding (RoFormer, Su et al. 2021) as matrices.

        They turn the pairs (i, i + half) of a head; as one product it takes a fourth of the time that slicing
        takes. All positions are below `stop`.
        """
        size = self._size
        if self._turns is None or len(self._turns) < stop:
            self._turns = self._angles(max(512, 2 * stop)).to(self.norm.device, self._dtype)
        matrices = self._turns.new_zeros(len(positions), size * size)
        return matrices.index_copy_(1, self._places, self._turns[positions]).view(-1, size, size)

    def _angles(self, count: int) -> Tensor:
        """`[count, 2 * head_dim]`: the cosines and sines of each position, as they go to `_places`."""
        rate = 1.0 / self._theta ** (torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        angle = torch.outer(torch.arange(count, dtype=torch.float32), rate)
        return torch.cat([angle.cos(), angle.cos(), angle.sin(), -angle.sin()], dim=1)
