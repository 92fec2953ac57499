"""Layers of the HiFT vocoder: padded convolutions, Snake residual blocks, pitch predictor, short-time Fourier pair.

Channel-major: `[B, C, L]`. What is causal runs on a whole signal, or on a piece of a stream with what it carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.hift_stream import Carry

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
        self.span = (kernel - 1) * dilation + 1  # of one output value
        # The CPU's convolution computes in blocks of 16 channels; for odd widths a sum of products is twice as fast.
        self.by_taps = stride == 1 and channels_out % _CPU_CHANNEL_BLOCK != 0

    def forward(self, x: Tensor, carry: Carry | None = None) -> Tensor:
        left, right = self.padding
        if carry is not None:
            overlap = self.span - self.stride
            x = carry.join(x, overlap, left=left, right=right) if overlap else x
            left = right = 0
        if self.by_taps and x.device.type == "cpu":
            return self._sum_of_taps(x, left, right)
        if left != right:
            x, left = F.pad(x, (left, right)), 0
        return F.conv1d(x, self.weight, self.bias, self.stride, left, self.dilation)

    def _sum_of_taps(self, x: Tensor, left: int, right: int) -> Tensor:
        """One matrix product per kernel tap, each over the part of `x` that it meets: no padding is written."""
        taps = self.weight.permute(2, 0, 1).contiguous()
        length = x.shape[2]
        out = self.bias[:, None].repeat(len(x), 1, length + left + right - self.span + 1)
        for item, sums in zip(x, out, strict=True):
            for offset, tap in zip(range(-left, self.span - left, self.dilation), taps, strict=True):
                start, stop = max(0, -offset), min(sums.shape[1], length - offset)
                sums[:, start:stop].addmm_(tap, item[:, start + offset : stop + offset])
        return out


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

    def forward(self, x: Tensor, carry: None = None) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.rate, self.trim)


class RepeatUpsample(Conv):
    """Each frame `rate` times, then a causal convolution (Fun-CosyVoice 3)."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, rate: int) -> None:
        super().__init__(channels_in, channels_out, kernel, (kernel - 1, 0))
        self.rate = rate

    def forward(self, x: Tensor, carry: Carry | None = None) -> Tensor:
        return super().forward(x.repeat_interleave(self.rate, dim=2), carry)


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, alpha per channel (Ziyin et al. 2020)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        # In one new tensor: the CPU takes longer to get large ones than to fill them.
        alpha = self.alpha[:, None]
        return (x * alpha).sin_().square_().mul_(1.0 / (alpha + _SNAKE_EPS)).add_(x)


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

    def forward(self, x: Tensor, carry: Carry | None = None) -> Tensor:
        parts = (self.activations1, self.convs1, self.activations2, self.convs2)
        for snake1, conv1, snake2, conv2 in zip(*parts, strict=True):
            x = conv2(snake2(conv1(snake1(x), carry)), carry).add_(x)
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

    def forward(self, mel: Tensor, carry: Carry | None = None) -> Tensor:
        """A stream's values are `lookahead` frames late: its first piece gives fewer, its final one more."""
        x = mel.to(self.classifier.weight.dtype)
        convs: Iterable[Any] = self.condnet.values()
        for conv in convs:
            x = F.elu(conv(x, carry))
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
        self.overlaps = n_fft // hop  # frames that reach over a sample
        self._tables: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(self, x: Tensor, carry: Carry | None = None) -> Tensor:
        """`x: [B, L] -> [B, n_fft + 2, L // hop + 1]`: real parts, then imaginary parts.

        A piece of a stream gives the frames it completes: all but the last half window's.
        """
        analysis, _, _ = self._get_tables(x)
        half = self.n_fft // 2
        ends = (half, half) if carry is None else (half * carry.starts, half * carry.final)
        x = F.pad(x[:, None], ends, mode="reflect")
        if carry is not None:
            x = carry.join(x, self.n_fft - self.hop)
        return analysis @ x[:, 0].unfold(1, self.n_fft, self.hop).transpose(1, 2)

    def inverse(self, magnitude: Tensor, phase: Tensor, carry: Carry | None = None) -> Tensor:
        """`[B, n_fft / 2 + 1, F]` each -> `[B, (F - 1) * hop]`.

        A piece of a stream gives the samples it completes: all but the last half window's.
        """
        _, synthesis, squares = self._get_tables(magnitude)
        spectrum = torch.cat((magnitude * phase.cos(), magnitude * phase.sin()), dim=1)
        first = last = self.overlaps // 2  # blocks of `hop` samples outside the signal
        if carry is not None:
            reach = self.overlaps - 1
            spectrum = carry.join(spectrum, reach)
            first, last = first if carry.starts else reach, last if carry.final else reach
        batch, _, frames = spectrum.shape
        pieces = (synthesis @ spectrum).view(batch, self.overlaps, self.hop, frames)
        blocks = frames + self.overlaps - 1
        wave = pieces.new_zeros(batch, self.hop, blocks)
        weight = squares.new_zeros(self.hop, blocks)
        for shift in range(self.overlaps):
            wave[..., shift : shift + frames] += pieces[:, shift]
            weight[:, shift : shift + frames] += squares[shift, :, None]
        inner = slice(first, blocks - last)
        return (wave[..., inner] / weight[:, inner]).transpose(1, 2).flatten(1)

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
