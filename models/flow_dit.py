"""The velocity estimator of the Fun-CosyVoice 3 flow: a diffusion transformer (DiT) as in F5-TTS.

Equal to upstream's DiT, including its rotary embedding of the first head only. Modulations (adaptive LayerNorm)
depend on the time alone: they are computed once per model, not once per step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cfm import TimeConditioning
from models.flow_graphs import BlockStack
from models.flow_layers import Linear, SelfAttention, gelu_tanh, mish, sinusoids
from models.packing import Packing

_NORM_EPS = 1e-6


class DiTEstimator(nn.Module):
    """Velocity of the flow; see `models.cfm.Estimator`."""

    def __init__(
        self,
        *,
        mels: int,
        conditioning: int,
        channels: int,
        depth: int,
        heads: int,
        head_width: int,
        hidden: int,
        time_width: int,
        position_kernel: int,
        position_group: int,
    ) -> None:
        """`conditioning`: channels of cond, mu and spk together; `position_group`: input channels per group."""
        super().__init__()
        self.attention_channels = depth * heads * head_width  # of all layers
        self.time_embed = TimeEmbedding(time_width, channels)
        self.input_embed = InputEmbedding(mels, conditioning, channels, position_kernel, position_group)
        self.rotary_embed = RotaryEmbedding(head_width)
        self.transformer_blocks = BlockStack(DiTBlock(channels, heads, head_width, hidden) for _ in range(depth))
        self.norm_out = Modulation(channels, 2)
        self.proj_out = nn.Linear(channels, mels)

    def time_conditioning(self, t: Tensor) -> list[Tensor]:
        """`t: [S]` in 0..1 -> the modulation of each block `[S, 1, 6 C]`, then of the output `[S, 1, 2 C]`."""
        embedding = F.silu(self.time_embed(t))[:, None]
        blocks: Iterable[Any] = self.transformer_blocks
        modulations = [block.attn_norm.linear(embedding) for block in blocks]
        return [*modulations, self.norm_out.linear(embedding)]

    def condition(self, mu: Tensor, spk: Tensor, cond: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        fixed = self.input_embed.fixed(torch.cat((cond, mu, spk), dim=-1))
        return fixed, *self.rotary_embed(packing.positions)

    def forward(self, x: Tensor, conditioning: tuple[Tensor, ...], time: TimeConditioning, packing: Packing) -> Tensor:
        fixed, *rotation = conditioning
        *modulations, last = time
        x = self.input_embed(x, fixed, packing)
        x = self.transformer_blocks(x, packing, [(modulation,) for modulation in modulations], rotation)
        scale, shift = last.chunk(2, dim=-1)
        return self.proj_out(_modulate(x, shift, scale))


class TimeEmbedding(nn.Module):
    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.width = width
        self.time_mlp = nn.Sequential(nn.Linear(width, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, t: Tensor) -> Tensor:
        return self.time_mlp(sinusoids(t, self.width))


class InputEmbedding(nn.Module):
    """Projects `[x | cond | mu | spk]` and adds a convolutional position embedding."""

    def __init__(self, mels: int, conditioning: int, channels: int, kernel: int, group: int) -> None:
        super().__init__()
        self.mels = mels
        self.proj = nn.Linear(mels + conditioning, channels)
        self.conv_pos_embed = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Conv1d(channels, channels, kernel, groups=channels // group))
                for name in ("conv1", "conv2")
            }
        )
        self.kernel = kernel

    def fixed(self, conditioning: Tensor) -> Tensor:
        """The share of `[cond | mu | spk]` in the projection, bias included: `[R, N, C]`."""
        return F.linear(conditioning, self.proj.weight[:, self.mels :], self.proj.bias)

    def forward(self, x: Tensor, fixed: Tensor, packing: Packing) -> Tensor:
        x = position = F.linear(x, self.proj.weight[:, : self.mels]) + fixed
        for conv in self.conv_pos_embed.values():
            convolved = [conv(part.transpose(1, 2)) for part in packing.extended(position, self.kernel - 1)]
            position = mish(torch.cat(convolved, dim=2)).transpose(1, 2)
        return x + position


class RotaryEmbedding(nn.Module):
    """Rotation angles of interleaved feature pairs (Su et al. 2021); the frequencies are in the checkpoint."""

    inv_freq: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", torch.empty(width // 2))

    def forward(self, positions: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Of frames `start .. stop` of each utterance: cos and sin, `[N, width / 2]` each."""
        each = [torch.arange(*span, device=self.inv_freq.device, dtype=torch.float32) for span in positions]
        angles = torch.cat(each)[:, None] * self.inv_freq
        return angles.cos(), angles.sin()


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the features of `x: [R, N, C]` in pairs, in place; `cos, sin: [N, C / 2]`."""
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1)
    x.copy_(turned.flatten(-2))


class Modulation(nn.Module):
    """Holds the projection from the time embedding to `parts` shifts, scales and gates (AdaLayerNormZero)."""

    def __init__(self, channels: int, parts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, parts * channels)


def _modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=_NORM_EPS), 1 + scale)


class DiTBlock(nn.Module):
    """Attention and feed-forward, modulated and gated by the time; see BlockStack."""

    def __init__(self, channels: int, heads: int, head_width: int, hidden: int) -> None:
        super().__init__()
        self.attn_norm = Modulation(channels, 6)
        self.attn = RotaryAttention(channels, heads, head_width)
        self.ff = FeedForward(channels, hidden)

    def project(self, x: Tensor, modulation: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shift, scale, *_ = modulation.chunk(6, dim=-1)
        return self.attn.rotated(_modulate(x, shift, scale), cos, sin)

    def mix(self, x: Tensor, attended: Tensor, modulation: Tensor) -> Tensor:
        _, _, gate_a, shift_m, scale_m, gate_m = modulation.chunk(6, dim=-1)
        x = torch.addcmul(x, gate_a, self.attn.to_out[0](attended))
        return torch.addcmul(x, gate_m, self.ff(_modulate(x, shift_m, scale_m)))


class RotaryAttention(SelfAttention):
    """Self-attention whose rotation is applied before the heads are split, so to the first head only.

    That is how the released weights were trained.
    """

    def __init__(self, channels: int, heads: int, width: int) -> None:
        super().__init__(channels, heads, width, bias=True)

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.project(x)
        rotate_(q[:, :, 0], cos, sin)
        rotate_(k[:, :, 0], cos, sin)
        return q, k, v


class FeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        # Upstream nests Linear and GELU, then Dropout, then Linear; the keys are 0.0 and 2.
        self.ff = nn.ModuleDict({"0": nn.Sequential(Linear(channels, hidden)), "2": Linear(hidden, channels)})

    def forward(self, x: Tensor) -> Tensor:
        return self.ff["2"](gelu_tanh(self.ff["0"](x)))
