"""Layers and attention masks that the flow networks of CosyVoice 2 and 3 share; all tensors are time-major."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalConv(nn.Module):
    """1-D convolution over time that sees only the past: `x: [B, M, C_in] -> [B, M, C_out]`.

    `weight: [C_out, C_in, K]` as in checkpoints until `pack` turns it into the one matrix `[C_out, K * C_in]`:
    a convolution over short sequences is fastest as one matrix product, and this keeps time-major layout.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel))
        self.bias = nn.Parameter(torch.empty(channels_out))

    def pack(self) -> None:
        if self.weight.dim() == 3:
            packed = self.weight.detach().permute(0, 2, 1).flatten(1).contiguous()
            self.weight = nn.Parameter(packed, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.valid(F.pad(x, (0, 0, self.kernel - 1, 0)))

    def valid(self, x: Tensor) -> Tensor:
        """Without padding: `[B, M + K - 1, C_in] -> [B, M, C_out]`."""
        return F.linear(windows(x, self.kernel), self.weight, self.bias)


def windows(x: Tensor, kernel: int) -> Tensor:
    """`[B, M + K - 1, C] -> [B, M, K * C]`: each frame beside its K - 1 successors."""
    if kernel == 1:
        return x
    frames = x.shape[1] - kernel + 1
    return torch.cat([x[:, shift : shift + frames] for shift in range(kernel)], dim=-1)


def pack(module: nn.Module) -> None:
    """Bring every convolution of a loaded module into the layout it computes in; call it once after loading."""
    for part in module.modules():
        if isinstance(part, CausalConv):
            part.pack()


class PreLookahead(nn.Module):
    """Mixes the next few token embeddings into each position, residually (upstream: PreLookaheadLayer).

    `forward(x: [B, T, C], context: [B, lookahead, C] | None) -> [B, T, C]`; without context the future is zero.
    """

    def __init__(self, channels: int, hidden: int, lookahead: int, kernel: int) -> None:
        super().__init__()
        self.lookahead = lookahead
        self.conv1 = CausalConv(channels, hidden, lookahead + 1)
        self.conv2 = CausalConv(hidden, channels, kernel)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        ahead = F.pad(x, (0, 0, 0, self.lookahead)) if context is None else torch.cat((x, context), dim=1)
        return self.conv2(F.leaky_relu(self.conv1.valid(ahead))) + x


def attention_mask(
    frames: int, chunk: int | None = None, lengths: Tensor | None = None, *, like: Tensor
) -> Tensor | None:
    """What to add to attention scores: 0 or -inf, broadcastable to `[B, heads, frames, frames]`; None: nothing.

    `chunk`: a frame sees its own chunk and all before it (streaming); None: everything. `lengths: [B]` int: frames
    per item, the rest is padding. `like` gives dtype and device.
    """
    blocked = None
    if chunk is not None and frames > chunk:  # a single chunk sees all of itself anyway
        position = torch.arange(frames, device=like.device)
        seen_until = (position // chunk + 1) * chunk
        blocked = (position[None, :] >= seen_until[:, None])[None, None]
    if lengths is not None and int(lengths.min()) < frames:
        padding = torch.arange(frames, device=like.device)[None, :] >= lengths.to(like.device)[:, None]
        padding = padding[:, None, None, :]
        blocked = padding if blocked is None else blocked | padding
    if blocked is None:
        return None
    return torch.zeros(blocked.shape, dtype=like.dtype, device=like.device).masked_fill_(blocked, -torch.inf)


def sinusoids(t: Tensor, channels: int, scale: float = 1000.0) -> Tensor:
    """`t: [S] -> [S, channels]`: sines, then cosines, of `scale * t` (Ho et al. 2020).

    The angles reach 1000, where float32 has an error of 3e-5: the order of the products is part of the model.
    """
    half = channels // 2
    step = math.log(10000.0) / (half - 1)
    frequencies = torch.exp(torch.arange(half, device=t.device).float() * -step)
    angles = scale * t[:, None] * frequencies[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
