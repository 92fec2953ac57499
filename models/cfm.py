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
from models.packing import Packing

NOISE_SEED = 0
MAX_FRAMES = 15_000  # frames of fixed noise: 300 s at 50 Hz, prompt included

TimeConditioning = Sequence[Tensor]
"""What an estimator derives from the time alone, one tensor per layer that uses it, each `[1 or B, 1, ...]`."""


class Estimator(Protocol):
    """The network that estimates the velocity of the flow."""

    def time_conditioning(self, t: Tensor) -> list[Tensor]:
        """`t: [S]` -> per layer `[S, 1, ...]`."""

    def condition(self, mu: Tensor, spk: Tensor, cond: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        """What stays the same over all steps; `mu, spk, cond: [R, N, mels]`."""

    def __call__(self, x: Tensor, conditioning: tuple[Tensor, ...], time: TimeConditioning, packing: Packing) -> Tensor:
        """Velocity `[R, N, mels]` at `x: [R, N, mels]`."""


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

    @property
    def passes(self) -> int:
        """Packings that `solve` takes: one for what conditions all steps, one per step."""
        return 1 + len(self.times)

    def solve(self, mu: Tensor, spk: Tensor, cond: Tensor, packings: Sequence[Packing]) -> Tensor:
        """Mel `[N, mels]` from `mu, spk, cond: [N, mels]`, the frames of `packings`.

        Row 0 of the estimator's `[R, N, mels]` is conditional, row 1 unconditional (all conditioning zero); without
        guidance there is no row 1, whose weight would be zero. Raises ModelError model_input_invalid beyond MAX_FRAMES.
        """
        estimator = cast(Estimator, self.estimator)

        def rows(given: Tensor) -> Tensor:
            return torch.stack((given, torch.zeros_like(given))) if self.guidance else given[None]

        conditioning = estimator.condition(rows(mu), rows(spk), rows(cond), packings[0])
        x = torch.cat([self.noise(start, stop, mu) for start, stop in packings[0].positions])
        times = self._time_conditioning(mu)
        for time, delta, packing in zip(times, self.deltas, packings[1:], strict=True):
            if self.guidance:
                conditional, unconditional = estimator(x.expand(2, -1, -1), conditioning, time, packing)
                velocity = (1.0 + self.guidance) * conditional - self.guidance * unconditional
            else:
                velocity = estimator(x[None], conditioning, time, packing)[0]
            x = x + delta * velocity
        return x.float()

    def noise(self, start: int, stop: int, like: Tensor) -> Tensor:
        """`[stop - start, mels]` of the fixed noise."""
        if stop > MAX_FRAMES:
            raise ModelError(
                "model_input_invalid",
                f"{stop} mel frames, prompt included, are more than the model's {MAX_FRAMES}; split the text",
            )
        if self._noise is None or self._noise.device != like.device:
            self._noise = fixed_noise(self.mels).to(like)
        return self._noise[start:stop]

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
    """`[MAX_FRAMES, mels]`: the noise of seed 0 (upstream draws it channel-major)."""
    generator = torch.Generator().manual_seed(NOISE_SEED)
    return torch.randn(1, mels, MAX_FRAMES, generator=generator)[0].T.contiguous()
