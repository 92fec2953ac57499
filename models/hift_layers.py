"""Layers of the HiFT vocoder: padded convolutions, Snake residual blocks, pitch predictor, short-time Fourier pair.

Channel-major: `[B, C, L]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_SNAKE_EPS = 1e-9
_CPU_CHANNEL_BLOCK = 16


class Conv(nn.Module):
    """A 1-D convolution that keeps its length (over its stride), padded on one side or both with zeros."""

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        padding: tuple[int, int],
        *,
        stride: int = 1,
        dilation: int = 1,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel))
        self.bias = nn.Parameter(torch.empty(channels_out))
        self.padding = padding
        self.stride = stride
        self.dilation = dilation
        # The CPU's convolution computes in blocks of 16 channels; for odd widths a sum of products is twice as fast.
        self.by_taps = stride == 1 and channels_out % _CPU_CHANNEL_BLOCK != 0

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.padding
        if self.by_taps and x.device.type == "cpu":
            return self._sum_of_taps(F.pad(x, self.padding))
        if left == right:
            return F.conv1d(x, self.weight, self.bias, self.stride, left, self.dilation)
        return F.conv1d(F.pad(x, self.padding), self.weight, self.bias, self.stride, 0, self.dilation)

    def _sum_of_taps(self, x: Tensor) -> Tensor:
        """`valid`, as one matrix product per kernel tap: `[1, C_in, L + reach] -> [1, C_out, L]`."""
        taps = self.weight.permute(2, 0, 1).contiguous()
        length = x.shape[2] - (len(taps) - 1) * self.dilation
        shifted = [x[0, :, k * self.dilation : k * self.dilation + length] for k in range(len(taps))]
        out = torch.addmm(self.bias[:, None], taps[0], shifted[0])
        for tap, part in zip(taps[1:], shifted[1:], strict=True):
            out.addmm_(tap, part)
        return out[None]

    def valid(self, x: Tensor) -> Tensor:
        """Without padding."""
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation)


def padding(kernel: int, dilation: int, *, causal: bool) -> tuple[int, int]:
    """(left, right) zeros that keep the length: all on the left when causal."""
    total = (kernel - 1) * dilation
    return (total, 0) if causal else (total // 2, total // 2)


class TransposedUpsample(nn.Module):
    """Transposed convolution by `rate` (CosyVoice 2). `weight: [C_in, C_out, K]`."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, rate: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_in, channels_out, kernel))
        self.bias = nn.Parameter(torch.empty(channels_out))
        self.rate = rate
        self.trim = (kernel - rate) // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.rate, self.trim)


class RepeatUpsample(Conv):
    """Each frame `rate` times, then a causal convolution (Fun-CosyVoice 3)."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, rate: int) -> None:
        super().__init__(channels_in, channels_out, kernel, (kernel - 1, 0))
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.repeat_interleave(self.rate, dim=2))


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, alpha per channel (Ziyin et al. 2020)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        sine = (x * alpha).sin_()
        return torch.addcmul(x, sine, sine * (1.0 / (alpha + _SNAKE_EPS)))


class ResBlock(nn.Module):
    """Residual dilated convolutions between Snakes (HiFi-GAN, Kong et al. 2020, with BigVGAN's activation)."""

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int], *, causal: bool) -> None:
        super().__init__()

        def conv(dilation: int) -> Conv:
            sides = padding(kernel, dilation, causal=causal)
            return Conv(channels, channels, kernel, sides, dilation=dilation)

        self.convs1 = nn.ModuleList(conv(dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.activations1, self.convs1, self.activations2, self.convs2)
        for snake1, conv1, snake2, conv2 in zip(*parts, strict=True):
            x = conv2(snake2(conv1(snake1(x)))).add_(x)
        return x


class PitchPredictor(nn.Module):
    """Fundamental frequency of each mel frame: `[B, mels, M] -> [B, M]` Hz, in the dtype of its weights.

    Causal (Fun-CosyVoice 3): the first convolution sees only later frames, the others only earlier ones.
    """

    def __init__(self, mels: int, channels: int, kernels: Sequence[int], *, causal: bool) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {}
        for index, kernel in enumerate(kernels):
            sides = padding(kernel, 1, causal=causal)
            if causal and index == 0:
                sides = sides[::-1]
            layers[str(2 * index)] = Conv(channels if index else mels, channels, kernel, sides)  # odd: ELU
        self.condnet = nn.ModuleDict(layers)
        self.classifier = nn.Linear(channels, 1)
        self.lookahead = kernels[0] - 1 if causal else 0

    def forward(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        """Not `finalize`: the last `lookahead` frames are context, M - lookahead values come out."""
        x = mel.to(self.classifier.weight.dtype)
        convs: Iterable[Any] = self.condnet.values()
        for index, conv in enumerate(convs):
            x = F.elu(conv(x) if finalize or index else conv.valid(x))
        return self.classifier(x.transpose(1, 2)).squeeze(-1).abs()

    def to_float64(self, normed: Mapping[str, Tensor], prefix: str) -> None:
        """Compute in float64, as upstream's causal model does: its phase adds up over a whole utterance.

        Upstream casts before it folds the weight norm, so the weights are folded again from the checkpoint `normed`.
        """
        self.double()
        for name, conv in self.condnet.items():
            key = f"{prefix}condnet.{name}."
            pair = sorted(k for k in normed if k.startswith(key) and not k.endswith(".bias"))
            if len(pair) == 2:  # (weight_g, weight_v) or (original0, original1), sorted
                g, v = (normed[k].double() for k in pair)
                conv.weight = nn.Parameter(torch._weight_norm(v, g), requires_grad=False)


class ShortTimeFourier:
    """STFT and its inverse for tiny windows, as matrix products (periodic Hann, centred, reflect-padded).

    Equal to torch.stft / torch.istft to float32 rounding; a 16-point FFT is slower than one 16 x 18 product.
    """

    def __init__(self, n_fft: int, hop: int) -> None:
        self.n_fft = n_fft
        self.hop = hop
        self._tables: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """`x: [L] -> [n_fft + 2, L // hop + 1]`: real parts, then imaginary parts."""
        analysis, _, _ = self._get_tables(x)
        half = self.n_fft // 2
        padded = F.pad(x[None, None], (half, half), mode="reflect")[0, 0]
        return analysis @ padded.unfold(0, self.n_fft, self.hop).T

    def inverse(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        """`[n_fft / 2 + 1, F]` each -> `[(F - 1) * hop]`."""
        _, synthesis, squares = self._get_tables(magnitude)
        spectrum = torch.cat((magnitude * phase.cos(), magnitude * phase.sin()))
        frames = magnitude.shape[1]
        overlaps = self.n_fft // self.hop
        pieces = (synthesis @ spectrum).view(overlaps, self.hop, frames)
        wave = pieces.new_zeros(self.hop, frames + overlaps - 1)
        weight = squares.new_zeros(self.hop, frames + overlaps - 1)
        for shift in range(overlaps):
            wave[:, shift : shift + frames] += pieces[shift]
            weight[:, shift : shift + frames] += squares[shift, :, None]
        edge = overlaps // 2
        inner = slice(edge, edge + frames - 1)
        return (wave[:, inner] / weight[:, inner]).T.reshape(-1)

    def _get_tables(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._tables is None or self._tables[0].device != like.device:
            self._tables = tuple(table.to(like) for table in self._make_tables())  # type: ignore[assignment]
        return self._tables  # type: ignore[return-value]

    def _make_tables(self) -> tuple[Tensor, Tensor, Tensor]:
        n, bins = self.n_fft, self.n_fft // 2 + 1
        window = torch.hann_window(n, periodic=True, dtype=torch.float64)
        angle = 2 * math.pi / n * torch.arange(bins, dtype=torch.float64)[:, None] * torch.arange(n)
        analysis = torch.cat((angle.cos(), -angle.sin())) * window
        share = torch.full((bins, 1), 2.0, dtype=torch.float64)  # bins between the ends stand for two
        share[0] = share[-1] = 1.0
        synthesis = torch.cat((share * angle.cos(), -share * angle.sin())).T / n * window[:, None]
        return analysis, synthesis, (window**2).view(-1, self.hop)
