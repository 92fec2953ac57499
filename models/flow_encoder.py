"""The token encoder of the CosyVoice 2 flow: a conformer that turns 25 Hz speech tokens into 50 Hz frames.

Equal to upstream's UpsampleConformerEncoder: pre-normalised blocks of relative-position attention (Transformer-XL,
Dai et al. 2019, in ESPnet's form) and feed-forward, before and after up-sampling in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.flow_layers import CausalConv, PreLookahead
from models.packing import Packing

_BLOCK_NORM_EPS = 1e-12


class UpsampleConformerEncoder(nn.Module):
    """Tokens to frames, `stride` for each."""

    def __init__(
        self,
        *,
        channels_in: int,
        channels: int,
        heads: int,
        hidden: int,
        blocks: int,
        up_blocks: int,
        lookahead: int,
        lookahead_kernel: int,
        stride: int,
        up_kernel: int,
    ) -> None:
        super().__init__()
        self.embed = InputLayer(channels_in, channels)
        self.pre_lookahead_layer = PreLookahead(channels, channels, lookahead, lookahead_kernel)
        self.encoders = nn.ModuleList(ConformerBlock(channels, heads, hidden) for _ in range(blocks))
        self.up_layer = Upsample(channels, stride, up_kernel)
        self.up_embed = InputLayer(channels, channels)
        self.up_encoders = nn.ModuleList(ConformerBlock(channels, heads, hidden) for _ in range(up_blocks))
        self.after_norm = nn.LayerNorm(channels)

    def forward(self, parts: Sequence[Tensor], ahead: Sequence[int], tokens: Packing, frames: Packing) -> Tensor:
        """`parts`: per span `[1, T + ahead, C_in]`, of which the last `ahead` are look-ahead only.

        `tokens` and `frames` are the packings before and after up-sampling. Output `[1, stride * sum of T, C]`.
        """
        x = self.pre_lookahead_layer([self.embed(part) for part in parts], ahead, tokens)
        x = self._run(self.encoders, x, tokens)
        x = self.up_embed(self.up_layer(x, frames))
        return self.after_norm(self._run(self.up_encoders, x, frames))

    @staticmethod
    def _run(blocks: Iterable[nn.Module], x: Tensor, packing: Packing) -> Tensor:
        for block in blocks:
            x = block(x, packing)
        return x


class InputLayer(nn.Module):
    """Linear, LayerNorm, then the transformer's sqrt(C) scale (positions enter in the attention only)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(channels_in, channels), nn.LayerNorm(channels))
        self.scale = math.sqrt(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) * self.scale


class Upsample(nn.Module):
    """Each frame `stride` times, then a causal convolution (upstream: Upsample1D)."""

    def __init__(self, channels: int, stride: int, kernel: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv = CausalConv(channels, channels, kernel)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return self.conv(x.repeat_interleave(self.stride, dim=1), packing)


class ConformerBlock(nn.Module):
    """Attention and feed-forward, each pre-normalised and residual; no convolution module."""

    def __init__(self, channels: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm_mha = nn.LayerNorm(channels, eps=_BLOCK_NORM_EPS)
        self.self_attn = RelativeAttention(channels, heads)
        self.norm_ff = nn.LayerNorm(channels, eps=_BLOCK_NORM_EPS)
        self.feed_forward = FeedForward(channels, hidden)

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), packing)
        return x + self.feed_forward(self.norm_ff(x))


class FeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(channels, hidden)
        self.w_2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(F.silu(self.w_1(x)))


class RelativeAttention(nn.Module):
    """Multi-head attention with scores [(q + u) k + (q + v) p(i - j)] / sqrt(d).

    p, the projected sinusoids of all relative positions, depends on the weights only: it is kept, and grows.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.width = channels // heads
        self.linear_q = nn.Linear(channels, channels)
        self.linear_k = nn.Linear(channels, channels)
        self.linear_v = nn.Linear(channels, channels)
        self.linear_out = nn.Linear(channels, channels)
        self.linear_pos = nn.Linear(channels, channels, bias=False)
        self.pos_bias_u = nn.Parameter(torch.empty(heads, self.width))
        self.pos_bias_v = nn.Parameter(torch.empty(heads, self.width))
        self._positions: Tensor | None = None  # [heads, width, 2N - 1]; column c is relative position N - 1 - c

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        split = (*x.shape[:2], self.heads, self.width)
        q, k, v = (project(x).view(split) for project in (self.linear_q, self.linear_k, self.linear_v))
        return self.linear_out(packing.attend(q, k, v, self._attention))

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        query = (q + self.pos_bias_v[:, None]) * self.width**-0.5
        frames, every = q.shape[2], k.shape[2]
        # Column c is of the relative position every - 1 - c.
        scores = torch.matmul(query, self._projected_positions(frames, every, q))  # [R, heads, n, N + n - 1]
        # Row i is frame N - n + i; its j-th score is in column n - 1 - i + j: a view with a shortened row stride.
        row, head, line = scores.stride()[0], scores.stride()[1], frames + every - 1
        bias = scores.as_strided(
            (*scores.shape[:2], frames, every), (row, head, line - 1, 1), scores.storage_offset() + frames - 1
        )
        if mask is not None:
            bias = bias + mask
        return F.scaled_dot_product_attention(q + self.pos_bias_u[:, None], k, v, attn_mask=bias)

    def _projected_positions(self, frames: int, every: int, like: Tensor) -> Tensor:
        """`[heads, width, every + frames - 1]`, from relative position every - 1 down to -(frames - 1)."""
        held = self._positions
        if held is None or held.device != like.device or held.shape[-1] < 2 * every - 1:
            size = max(256, 1 << (every - 1).bit_length())
            table = relative_sinusoids(size, self.heads * self.width).to(like)
            held = self.linear_pos(table).view(-1, self.heads, self.width).permute(1, 2, 0).contiguous()
            self._positions = held
        centre = held.shape[-1] // 2
        return held[..., centre - every + 1 : centre + frames]


def relative_sinusoids(size: int, channels: int) -> Tensor:
    """`[2 * size - 1, channels]`: interleaved sine and cosine of the positions size - 1 down to -(size - 1)."""
    position = torch.arange(size - 1, -size, -1, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, channels, 2, dtype=torch.float32) * -(math.log(10000.0) / channels))
    return torch.stack(((position * rate).sin(), (position * rate).cos()), dim=-1).flatten(1)
