"""Change of speed while streaming: a mel spectrogram resampled in time, piece by piece, without seams."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class SpeedResampler:
    """Linear interpolation at output frame i of the input at (i + 0.5) * speed - 0.5.

    Pieces give the same frames as the whole: the position is carried, and the input frames it may still need.
    (Interpolating a whole mel to int(M / speed) frames, as upstream does without streaming, uses M / int(M / speed)
    in place of `speed`.)
    """

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._held: Tensor | None = None  # [mels, n]: the input from frame `_first` on
        self._first = 0
        self._written = 0  # output frames so far

    def feed(self, mel: Tensor, *, final: bool) -> Tensor:
        """`mel: [mels, M]` new input -> the output frames it completes, `[mels, K]`; `final`: all that remain."""
        held = mel if self._held is None else torch.cat((self._held, mel), dim=1)
        end = self._first + held.shape[1]  # input frames so far
        if final:
            count = max(int(end / self.speed), 1) - self._written
        else:  # both neighbours of an output frame must be there
            count = math.ceil((end - 0.5) / self.speed - 0.5) - self._written
        output = torch.arange(self._written, self._written + max(count, 0), dtype=torch.float64)
        position = ((output + 0.5) * self.speed - 0.5).clamp(min=0)
        left = position.long()
        share = (position - left).to(held)
        left = left.to(held.device) - self._first
        last = held.shape[1] - 1
        out = torch.lerp(held[:, left.clamp(max=last)], held[:, (left + 1).clamp(max=last)], share)
        self._written += len(output)
        keep = min(max(int((self._written + 0.5) * self.speed - 0.5), self._first), end)
        self._held, self._first = held[:, keep - self._first :], keep
        return out
