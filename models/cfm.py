"""Conditional flow matching: carry fixed noise to a mel spectrogram by Euler steps with classifier-free guidance.

Equal to upstream's CausalConditionalCFM: the noise is the same for every request and indexed by absolute frame, so
that all hops of a stream, which share a prefix, see the same noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from models.errors import ModelError

NOISE_SEED = 0
MAX_FRAMES = 15_000  # frames of fixed noise: 300 s at 50 Hz, prompt included

TimeConditioning = Sequence[Tensor]
"""What an estimator derives from the time alone, one tensor per layer that uses it, each `[1 or B, 1, ...]`."""


class Estimator(Protocol):
    """The network that estimates the velocity of the flow."""

    def time_conditioning(self, t: Tensor) -> list[Tensor]:
        """`t: [S]` -> per layer `[S, 1, ...]`."""

    def condition(self, mu: Tensor, spk: Tensor, cond: Tensor) -> tuple[Tensor, ...]:
        """What stays the same over all steps; `mu, cond: [B, M, mels]`, `spk: [B, mels]`."""

    def __call__(
        self, x: Tensor, conditioning: tuple[Tensor, ...], time: TimeConditioning, mask: Tensor | None
    ) -> Tensor:
        """Velocity `[B, M, mels]` at `x: [B, M, mels]`."""


class ConditionalFlowMatching(nn.Module):
    """The solver around an estimator. `guidance`: weight of classifier-free guidance (Ho and Salimans 2022)."""

    def __init__(self, estimator: nn.Module, *, mels: int, guidance: float, steps: int = 10) -> None:
        super().__init__()
        self.estimator = estimator
        self.mels = mels
        self.guidance = guidance
        with torch.device("cpu"):  # a module is built on the meta device, where values cannot be read
            self.times, self.deltas = euler_schedule(steps)
        self._time: list[list[Tensor]] | None = None  # per step
        self._noise: Tensor | None = None

    def solve(self, mu: Tensor, spk: Tensor, cond: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mel `[B, M, mels]` from `mu, cond: [B, M, mels]`, `spk: [B, mels]`.

        `mask` as of `attention_mask`, for B items. Rows 0..B-1 of the estimator's batch are conditional, rows
        B..2B-1 unconditional (all conditioning zero); without guidance there are none of the latter, whose weight
        would be zero. Raises ModelError model_input_invalid beyond MAX_FRAMES.
        """
        batch, frames = mu.shape[:2]
        estimator = cast(Estimator, self.estimator)

        def rows(given: Tensor) -> Tensor:
            return torch.cat((given, torch.zeros_like(given))) if self.guidance else given

        conditioning = estimator.condition(rows(mu), rows(spk), rows(cond))
        if self.guidance and mask is not None and mask.shape[0] > 1:
            mask = torch.cat((mask, mask))
        x = self.noise(frames, mu).expand(batch, -1, -1)
        for time, delta in zip(self._time_conditioning(mu), self.deltas, strict=True):
            if self.guidance:
                velocity = estimator(x.repeat(2, 1, 1), conditioning, time, mask)
                conditional, unconditional = velocity[:batch], velocity[batch:]
                velocity = (1.0 + self.guidance) * conditional - self.guidance * unconditional
            else:
                velocity = estimator(x, conditioning, time, mask)
            x = x + delta * velocity
        return x.float()

    def noise(self, frames: int, like: Tensor) -> Tensor:
        """`[1, frames, mels]`: the start of the fixed noise."""
        if frames > MAX_FRAMES:
            raise ModelError(
                "model_input_invalid",
                f"{frames} mel frames, prompt included, are more than the model's {MAX_FRAMES}; split the text",
            )
        if self._noise is None or self._noise.device != like.device:
            self._noise = fixed_noise(self.mels).to(like)
        return self._noise[:, :frames]

    def _time_conditioning(self, like: Tensor) -> list[list[Tensor]]:
        if self._time is None or self._time[0][0].device != like.device:
            estimator = cast(Estimator, self.estimator)
            layers = estimator.time_conditioning(torch.tensor(self.times).to(like))
            self._time = [[layer[k : k + 1] for layer in layers] for k in range(len(self.times))]
        return self._time


def euler_schedule(steps: int) -> tuple[list[float], list[float]]:
    """Where the velocity is evaluated and how far each step goes.

    The points are 1 - cos(k / steps * pi / 2); time adds up in float32 as it does upstream.
    """
    points = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * math.pi)
    t, times, deltas = points[0], [], []
    for step in range(steps):
        delta = points[step + 1] - t
        times.append(t.item())
        deltas.append(delta.item())
        t = t + delta
    return times, deltas


@functools.lru_cache(maxsize=1)
def fixed_noise(mels: int) -> Tensor:
    """`[1, MAX_FRAMES, mels]`: the noise of seed 0 (upstream draws it channel-major)."""
    generator = torch.Generator().manual_seed(NOISE_SEED)
    return torch.randn(1, mels, MAX_FRAMES, generator=generator).transpose(1, 2).contiguous()
