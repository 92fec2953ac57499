"""The token encoder of the CosyVoice 2 flow: a conformer that turns 25 Hz speech tokens into 50 Hz frames.

Equal to upstream's UpsampleConformerEncoder: pre-normalised blocks of relative-position attention (Transformer-XL,
Dai et al. 2019, in ESPnet's form) and feed-forward, before and after up-sampling in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.flow_layers import CausalConv, PreLookahead, attention_mask, zero_padding

_BLOCK_NORM_EPS = 1e-12


class UpsampleConformerEncoder(nn.Module):
    """`forward(x: [B, T, C_in]) -> [B, stride * (T - ahead), C]`."""

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
        chunk: int,
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.embed = InputLayer(channels_in, channels)
        self.pre_lookahead_layer = PreLookahead(channels, channels, lookahead, lookahead_kernel)
        self.encoders = nn.ModuleList(ConformerBlock(channels, heads, hidden) for _ in range(blocks))
        self.up_layer = Upsample(channels, stride, up_kernel)
        self.up_embed = InputLayer(channels, channels)
        self.up_encoders = nn.ModuleList(ConformerBlock(channels, heads, hidden) for _ in range(up_blocks))
        self.after_norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, *, ahead: int = 0, streaming: bool = False, lengths: Tensor | None = None) -> Tensor:
        """The last `ahead` of the T positions are look-ahead only: T - ahead are encoded.

        `streaming`: attend chunk by chunk. `lengths: [B]`: positions per item, look-ahead included, the rest is
        padding; what comes out for padding is undefined.
        """
        # Padding is zeroed behind the input layer, whose bias would otherwise leak through the look-ahead.
        x = self.pre_lookahead_layer(zero_padding(self.embed(x), lengths))
        x = x[:, : x.shape[1] - ahead]
        encoded = None if lengths is None else lengths - ahead
        x = self._run(self.encoders, x, self.chunk if streaming else None, encoded)
        x = self.up_embed(self.up_layer(x))
        stride = self.up_layer.stride
        encoded = None if encoded is None else encoded * stride
        x = self._run(self.up_encoders, x, self.chunk * stride if streaming else None, encoded)
        return self.after_norm(x)

    @staticmethod
    def _run(blocks: Iterable[nn.Module], x: Tensor, chunk: int | None, lengths: Tensor | None) -> Tensor:
        mask = attention_mask(x.shape[1], chunk, lengths, like=x)
        for block in blocks:
            x = block(x, mask)
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

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x.repeat_interleave(self.stride, dim=1))


class ConformerBlock(nn.Module):
    """Attention and feed-forward, each pre-normalised and residual; no convolution module."""

    def __init__(self, channels: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm_mha = nn.LayerNorm(channels, eps=_BLOCK_NORM_EPS)
        self.self_attn = RelativeAttention(channels, heads)
        self.norm_ff = nn.LayerNorm(channels, eps=_BLOCK_NORM_EPS)
        self.feed_forward = FeedForward(channels, hidden)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), mask)
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

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`x: [B, T, C]`, `mask` as of `attention_mask` -> `[B, T, C]`."""
        batch, frames, channels = x.shape
        split = (batch, frames, self.heads, self.width)
        q = self.linear_q(x).view(split)
        k = self.linear_k(x).view(split).transpose(1, 2)
        v = self.linear_v(x).view(split).transpose(1, 2)
        bias = self._position_scores(q)
        if mask is not None:
            bias = bias + mask
        out = F.scaled_dot_product_attention((q + self.pos_bias_u).transpose(1, 2), k, v, attn_mask=bias)
        return self.linear_out(out.transpose(1, 2).reshape(batch, frames, channels))

    def _position_scores(self, q: Tensor) -> Tensor:
        """`q: [B, T, heads, width] -> [B, heads, T, T]`: (q_i + v) p(i - j) / sqrt(d)."""
        frames = q.shape[1]
        query = ((q + self.pos_bias_v) * self.width**-0.5).transpose(1, 2)
        scores = torch.matmul(query, self._projected_positions(frames, q))  # [B, heads, T, 2T - 1]
        # Row i holds positions T-1 ... -(T-1); its j-th score is column T-1-i+j: a view with a shortened row stride.
        batch, heads, head = scores.stride()[0], scores.stride()[1], 2 * frames - 1
        return scores.as_strided(
            (*scores.shape[:2], frames, frames), (batch, heads, head - 1, 1), scores.storage_offset() + frames - 1
        )

    def _projected_positions(self, frames: int, like: Tensor) -> Tensor:
        """`[heads, width, 2 * frames - 1]`, from relative position frames - 1 down to -(frames - 1)."""
        held = self._positions
        if held is None or held.device != like.device or held.shape[-1] < 2 * frames - 1:
            size = max(256, 1 << (frames - 1).bit_length())
            table = relative_sinusoids(size, self.heads * self.width).to(like)
            held = self.linear_pos(table).view(-1, self.heads, self.width).permute(1, 2, 0).contiguous()
            self._positions = held
        centre = held.shape[-1] // 2
        return held[..., centre - frames + 1 : centre + frames]


def relative_sinusoids(size: int, channels: int) -> Tensor:
    """`[2 * size - 1, channels]`: interleaved sine and cosine of the positions size - 1 down to -(size - 1)."""
    position = torch.arange(size - 1, -size, -1, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, channels, 2, dtype=torch.float32) * -(math.log(10000.0) / channels))
    return torch.stack(((position * rate).sin(), (position * rate).cos()), dim=-1).flatten(1)
