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
from models.errors import ModelError


@dataclass(frozen=True)
class SourceSettings:
    sample_rate: int  # Hz
    harmonics: int  # sines, the fundamental included
    sine_amplitude: float
    noise_std: float
    voiced_threshold: float  # Hz
    upsample: int  # samples per mel frame


class HarmonicSource(nn.Module):
    """`forward(f0: [M] float32 Hz) -> [M * upsample]`.

    With `fixed_noise` (Fun-CosyVoice 3) the phase is held within a frame and the noise is the same for every call;
    without (CosyVoice 2) the phase is interpolated and the noise is drawn from the call's generator.
    """

    def __init__(self, settings: SourceSettings, fixed_noise: FixedNoise | None) -> None:
        super().__init__()
        self.settings = settings
        self.fixed_noise = fixed_noise
        self.l_linear = nn.Linear(settings.harmonics, 1)

    def forward(self, f0: Tensor, generator: torch.Generator | None) -> Tensor:
        voiced = (f0 > self.settings.voiced_threshold).to(f0)
        voices = self._sines(f0) * self._stretch(voiced * self.settings.sine_amplitude)
        silence = self.settings.sine_amplitude / 3
        amount = voiced * self.settings.noise_std + (1 - voiced) * silence
        noise = self._noise(f0, generator) * self._stretch(amount)
        return torch.tanh(voices + noise + self.l_linear.bias)

    def _sines(self, f0: Tensor) -> Tensor:
        """The merged unit sines `[M * upsample]`."""
        settings = self.settings
        multiples = torch.arange(1, settings.harmonics + 1, device=f0.device, dtype=f0.dtype)
        turns = (f0[:, None] * multiples / settings.sample_rate) % 1  # per sample, [M, harmonics]
        # The order of these products is part of the model: the angles are large, float32 rounds them.
        phase = (turns.cumsum(0) * 2 * math.pi).T * settings.upsample
        if self.fixed_noise is not None:
            return self._stretch((self.l_linear.weight @ phase.sin())[0])
        phase = F.interpolate(phase[None], scale_factor=float(settings.upsample), mode="linear")[0]
        return (self.l_linear.weight @ phase.sin_())[0]

    def _noise(self, f0: Tensor, generator: torch.Generator | None) -> Tensor:
        """The merged unit noise `[M * upsample]`."""
        samples = len(f0) * self.settings.upsample
        weight = self.l_linear.weight
        if self.fixed_noise is not None:
            return self.fixed_noise.merged(samples, weight)
        # Upstream draws a start phase per harmonic first; the interpolation never reads the sample it is added to.
        torch.rand(1, self.settings.harmonics, generator=generator)
        normal = serial_normal(self.settings.harmonics * samples, generator).view(-1, samples)
        return (weight @ normal.to(weight))[0]

    def _stretch(self, per_frame: Tensor) -> Tensor:
        return per_frame.repeat_interleave(self.settings.upsample)


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

    def merged(self, samples: int, weight: Tensor) -> Tensor:
        """`[samples]`: the noise from its start, summed over harmonics by `weight: [1, harmonics]`."""
        if samples > self.max_samples:
            raise ModelError(
                "model_input_invalid", f"{samples} samples are more than the model's {self.max_samples}; split the text"
            )
        held = self._merged
        if held is None or held.device != weight.device:
            held, self._generator = weight.new_zeros(0), None
        if len(held) < samples:
            size = min(self.max_samples, max(samples, 2 * len(held), 1 << 17))
            held = torch.cat((held, (self.draw(size - len(held)).to(weight) @ weight.T)[:, 0]))
            self._merged = held
        return held[:samples]

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
