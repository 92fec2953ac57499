"""Layers that the flow networks of CosyVoice 2 and 3 share; all tensors are time-major, frames packed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.packing import Packing, windows
from models.precision import packs


class Linear(nn.Linear):
    """Computes in the dtype of its weights, whatever comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return product(x.to(self.weight.dtype), self.weight, self.bias)


class SelfAttention(nn.Module):
    """The projections of multi-head self-attention. `pack` makes those of queries, keys and values one: a hop of a
    stream has few frames, and three small products take longer than a large one."""

    def __init__(self, channels: int, heads: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.width = width
        self.to_q, self.to_k, self.to_v = (Linear(channels, heads * width, bias=bias) for _ in range(3))
        self.to_out = nn.ModuleList([Linear(heads * width, channels)])

    def pack(self) -> None:
        parts = [self.to_q, self.to_k, self.to_v]
        del self.to_q, self.to_k, self.to_v
        with torch.device("meta"):
            self.to_qkv = Linear(parts[0].in_features, 3 * parts[0].out_features, bias=parts[0].bias is not None)
        for name, _ in parts[0].named_parameters():
            joined = torch.cat([getattr(part, name).detach() for part in parts])
            setattr(self.to_qkv, name, nn.Parameter(joined, requires_grad=False))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[R, N, C]` -> queries, keys, values `[R, N, heads, width]`."""
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, self.width)).unbind(-3)
        return q, k, v


class CausalConv(nn.Module):
    """1-D convolution over time that sees only the past: `x: [R, N, C_in] -> [R, N, C_out]`.

    `weight: [C_out, C_in, K]` as in checkpoints until `pack` turns it into the one matrix `[C_out, K * C_in]`:
    a convolution over short sequences is fastest as one matrix product, and this keeps time-major layout. It computes
    in the dtype of its weights and gives back that of its input.
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

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return self.of_windows(packing.windows(x.to(self.weight.dtype), self.kernel)).to(x.dtype)

    def of_windows(self, x: Tensor) -> Tensor:
        """`x: [R, N, K * C_in]`, each frame with its predecessors beside it."""
        return product(x, self.weight, self.bias)


def pack(module: nn.Module) -> None:
    """Bring every layer of a loaded module into the layout it computes in; call it once after loading."""
    for part in list(module.modules()):
        if isinstance(part, (CausalConv, SelfAttention)):
            part.pack()


def lower_precision(module: nn.Module, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
    """Let the matrix products of a packed module compute in `dtype`, on `device`. Norms, sums and positions stay as
    they are."""
    reorder = dtype == torch.bfloat16 and packs(device, dtype)
    for part in module.modules():
        if isinstance(part, (Linear, CausalConv)):
            part.to(dtype)
            for name, weight in list(part.named_parameters()):
                if reorder and weight.dim() == 2:
                    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
                    setattr(part, name, nn.Parameter(ordered, requires_grad=False))


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, also with a weight in oneDNN's own layout, into which it would bring bfloat16 anew at every call: for
    the few frames of a hop that takes as long as the product itself."""
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


class PreLookahead(nn.Module):
    """Mixes the next few positions into each one, residually (upstream: PreLookaheadLayer).

    Beyond the end of an utterance the future is zero.
    """

    def __init__(self, channels: int, hidden: int, lookahead: int, kernel: int) -> None:
        super().__init__()
        self.lookahead = lookahead
        self.conv1 = CausalConv(channels, hidden, lookahead + 1)
        self.conv2 = CausalConv(hidden, channels, kernel)

    def forward(self, parts: Sequence[Tensor], ahead: Sequence[int], packing: Packing) -> Tensor:
        """`parts`: per span `[1, n + ahead, C]`, of which the last `ahead` are look-ahead only -> `[1, N, C]`."""
        padded = [F.pad(x, (0, 0, 0, self.lookahead - beyond)) for x, beyond in zip(parts, ahead, strict=True)]
        mixed = self.conv1.of_windows(torch.cat([windows(x, self.lookahead + 1) for x in padded], dim=1))
        own = torch.cat([x[:, : x.shape[1] - self.lookahead] for x in padded], dim=1)
        return self.conv2(F.leaky_relu(mixed), packing) + own


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
