"""The excitation of the HiFT vocoder: harmonics of the pitch plus noise, merged into one signal.

Equal to upstream's SourceModuleHnNSF with SineGen2 (neural source filter, Wang et al. 2019). Pitch is constant within
a mel frame, so everything that upstream computes per sample from it is computed here per frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import cfm
from models.device import to_device
from models.errors import ModelError
from models.hift_stream import Carry

_DRAWN_AT_ONCE = 1 << 17  # samples of the fixed noise


@dataclass(frozen=True)
class SourceSettings:
    sample_rate: int  # Hz
    harmonics: int  # sines, the fundamental included
    sine_amplitude: float
    noise_std: float
    voiced_threshold: float  # Hz
    upsample: int  # samples per mel frame


class HarmonicSource(nn.Module):
    """`forward(f0: [B, M] float32 Hz, noise: [B, M * upsample]) -> [B, M * upsample]`.

    With `fixed_noise` (Fun-CosyVoice 3) the phase is held within a frame and the noise is the same for every call;
    without (CosyVoice 2) the phase is interpolated and the noise is drawn from the call's generator.
    """

    def __init__(self, settings: SourceSettings, fixed_noise: FixedNoise | None) -> None:
        super().__init__()
        self.settings = settings
        self.fixed_noise = fixed_noise
        self.l_linear = nn.Linear(settings.harmonics, 1)

    def forward(self, f0: Tensor, noise: Tensor, carry: Carry | None = None) -> Tensor:
        """`noise`: a row of `noise()` for each row. `carry`: of a stream's phase, float64."""
        voiced = (f0 > self.settings.voiced_threshold).to(f0)
        voices = self._sines(f0, carry) * self._stretch(voiced * self.settings.sine_amplitude)
        silence = self.settings.sine_amplitude / 3
        amount = voiced * self.settings.noise_std + (1 - voiced) * silence
        return torch.tanh(voices + noise * self._stretch(amount) + self.l_linear.bias)

    def _sines(self, f0: Tensor, carry: Carry | None) -> Tensor:
        """The merged unit sines `[B, M * upsample]`."""
        settings = self.settings
        multiples = torch.arange(1, settings.harmonics + 1, device=f0.device, dtype=f0.dtype)
        turns = (f0[:, None] * multiples[:, None] / settings.sample_rate) % 1  # per sample, [B, harmonics, M]
        # The order of these products is part of the model: the angles are large, float32 rounds them.
        phase = running_sum(turns, carry) * 2 * math.pi * settings.upsample
        if self.fixed_noise is not None:
            return self._stretch((self.l_linear.weight @ phase.sin())[:, 0])
        phase = F.interpolate(phase, scale_factor=float(settings.upsample), mode="linear")
        return (self.l_linear.weight @ phase.sin_())[:, 0]

    def noise(self, frames: int, generator: torch.Generator | None = None, *, start: int = 0) -> Tensor:
        """The merged unit noise of `frames`, `[frames * upsample]`; of the fixed noise, from frame `start` on."""
        samples = frames * self.settings.upsample
        weight = self.l_linear.weight
        if self.fixed_noise is not None:
            return self.fixed_noise.merged(samples, weight, start=start * self.settings.upsample)
        # Upstream draws a start phase per harmonic first; the interpolation never reads the sample it is added to.
        torch.rand(1, self.settings.harmonics, generator=generator)
        normal = serial_normal(self.settings.harmonics * samples, generator).view(-1, samples)
        return (weight @ to_device(normal, weight.device))[0]

    def _stretch(self, per_frame: Tensor) -> Tensor:
        return per_frame.repeat_interleave(self.settings.upsample, dim=-1)


def running_sum(x: Tensor, carry: Carry | None) -> Tensor:
    """The cumulative sum of `x: [B, C, M]` float32 along M, of a stream's pieces to the bit the whole's.

    torch adds up in float64 on the CPU and rounds each sum, so that is what a stream carries.
    """
    terms = x.double()
    if carry is not None and not carry.starts:
        terms = torch.cat((carry.take(x.shape[1], 1), terms), dim=-1)
    sums = terms.cumsum(-1)[..., -x.shape[-1] :]
    if carry is not None:
        carry.keep(sums[..., -1:])
    return sums.to(x)


def serial_normal(count: int, generator: torch.Generator | None) -> Tensor:
    """`[count]` float32: what torch draws into a tensor that is not contiguous, as upstream's happens to be.

    torch then makes one Box-Muller pair at a time from two float64 uniforms; this is the same, vectorised.
    """
    uniform = torch.rand((count + 1) // 2, 2, dtype=torch.float64, generator=generator)
    radius = (1 - uniform[:, 1]).float().log_().mul_(-2).sqrt_()
    angle = uniform[:, 0].float().mul_(2 * math.pi)
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1).flatten()[:count]


class FixedNoise:
    """The uniform noise that upstream's Fun-CosyVoice 3 vocoder draws when it is constructed.

    It is not in the checkpoint: it follows from the seed that the flow sets and from what is drawn between, the
    initial values of the layers constructed in that order. Only the part needed so far is drawn, and only its
    weighted sum over harmonics is kept (a ninth of the 259 MB that upstream holds).
    """

    def __init__(self, layers: Sequence[tuple[str, Sequence[int]]], mels: int, harmonics: int, upsample: int) -> None:
        """`layers`: kind (`embedding`: normal values; `affine`: uniform weight and bias) and weight shape."""
        self._layers = tuple(layers)
        self._mels = mels
        self._harmonics = harmonics
        self.max_samples = cfm.MAX_FRAMES * upsample
        self._generator: torch.Generator | None = None
        self._merged: Tensor | None = None

    @classmethod
    def of_model(cls, flow: Any, hift: Any, f0_kernels: Sequence[int], upsample: int) -> FixedNoise:
        """From the yaml's sections: upstream constructs the flow's outer layers, then the pitch predictor."""
        mels, channels = flow["output_size"], hift["f0_predictor"]["cond_channels"]
        layers: list[tuple[str, Sequence[int]]] = [
            ("embedding", (flow["vocab_size"], flow["input_size"])),
            ("affine", (mels, flow["spk_embed_dim"])),
        ]
        width = hift["f0_predictor"]["in_channels"]
        for kernel in f0_kernels:
            layers.append(("affine", (channels, width, kernel)))
            width = channels
        layers.append(("affine", (1, channels)))
        return cls(layers, mels, hift["nb_harmonics"] + 1, upsample)

    def merged(self, samples: int, weight: Tensor, *, start: int = 0) -> Tensor:
        """`[samples]` of the noise from sample `start` on, summed over harmonics by `weight: [1, harmonics]`."""
        end = start + samples
        if end > self.max_samples:
            raise ModelError(
                "model_input_invalid", f"{end} samples are more than the model's {self.max_samples}; split the text"
            )
        held, self._merged = self._merged, None  # a failure between a draw and its keeping must not lose the place
        if held is None or held.device != weight.device:
            held, self._generator = weight.new_zeros(0), None
        if len(held) < end:
            # Always in the same blocks, so that sums do not depend on who asked first for how much.
            blocks = math.ceil((end - len(held)) / _DRAWN_AT_ONCE)
            drawn = (self.draw(_DRAWN_AT_ONCE).to(weight) @ weight.T for _ in range(blocks))
            held = torch.cat((held, *(block[:, 0] for block in drawn)))
        self._merged = held
        return held[start:end]

    def draw(self, samples: int) -> Tensor:
        """The next `[samples, harmonics]` of the noise, uniform in [0, 1)."""
        if self._generator is None:
            self._generator = self._start()
        return torch.rand(samples, self._harmonics, generator=self._generator)

    def _start(self) -> torch.Generator:
        generator = torch.Generator().manual_seed(cfm.NOISE_SEED)
        torch.randn(1, self._mels, cfm.MAX_FRAMES, generator=generator)  # the flow's own noise
        for kind, shape in self._layers:
            if kind == "embedding":
                torch.randn(*shape, generator=generator)
            else:
                torch.rand(*shape, generator=generator)
                torch.rand(shape[0], generator=generator)
        torch.rand(1, self._harmonics, generator=generator)  # start phases, without effect
        return generator
