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
    """Mixes the next few positions into each one, residually: `[B, T, C] -> [B, T, C]` (upstream: PreLookaheadLayer).

    Beyond the end the future is zero. When more tokens are to come, the last `lookahead` outputs are not valid.
    """

    def __init__(self, channels: int, hidden: int, lookahead: int, kernel: int) -> None:
        super().__init__()
        self.lookahead = lookahead
        self.conv1 = CausalConv(channels, hidden, lookahead + 1)
        self.conv2 = CausalConv(hidden, channels, kernel)

    def forward(self, x: Tensor) -> Tensor:
        ahead = F.pad(x, (0, 0, 0, self.lookahead))
        return self.conv2(F.leaky_relu(self.conv1.valid(ahead))) + x


def zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """`x: [B, T, C]` with the positions from `lengths: [B]` on set to zero; None: nothing is padding."""
    if lengths is None:
        return x
    padding = torch.arange(x.shape[1], device=x.device) >= lengths.to(x.device)[:, None]
    return x.masked_fill(padding[..., None], 0.0)


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


def mish(x: Tensor) -> Tensor:
    """x tanh(ln(1 + e^x)) (Misra 2019) by one exponential: w / (w + 2) with w = e^x (e^x + 2).

    torch's own kernel takes three transcendental functions and, on a CPU, several times as long.
    """
    e = x.clamp(max=20.0).exp_()  # beyond, the fraction is 1 in float32, and e^2x must not overflow
    w = torch.addcmul(e + e, e, e)
    return w.div_(w + 2.0).mul_(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in its tanh approximation (Hendrycks and Gimpel 2016), as x sigmoid(2 y): faster than torch's on a CPU."""
    y = (x * x).mul_(0.044715).add_(1.0).mul_(x).mul_(2.0 * math.sqrt(2.0 / math.pi))
    return y.sigmoid_().mul_(x)


def sinusoids(t: Tensor, channels: int, scale: float = 1000.0) -> Tensor:
    """`t: [S] -> [S, channels]`: sines, then cosines, of `scale * t` (Ho et al. 2020).

    The angles reach 1000, where float32 has an error of 3e-5: the order of the products is part of the model.
    """
    half = channels // 2
    step = math.log(10000.0) / (half - 1)
    frequencies = torch.exp(torch.arange(half, device=t.device).float() * -step)
    angles = scale * t[:, None] * frequencies[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
