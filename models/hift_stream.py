"""What a stream of the causal vocoder carries from piece to piece, and how its layers take and keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class VocoderState:
    """A stream's place in the causal vocoder. Each piece gives a new one; this one stays as it is."""

    waiting: Tensor  # [mels, n]: the first frames, while they are too few to give samples
    frames: int = 0  # whose source has been made
    pitch: Tensor | None = None  # [P] float64, of `Carry.packed`: the pitch predictor's, and the phase
    signal: Tensor | None = None  # [S] float32, of `Carry.packed`: all else

    @property
    def bytes(self) -> int:
        return sum(part.nbytes for part in (self.waiting, self.pitch, self.signal) if part is not None)


class Carry:
    """The ends of the signals inside the network, between one piece of a stream (or of B streams) and the next.

    Layers take what they kept in the same order for every piece. Signals are channel-major, `[B, C, L]`.
    """

    def __init__(self, before: Tensor | None = None, *, final: bool) -> None:
        """`before: [B, values]`, the `packed` of the piece before; without it the stream starts. `final`: it ends."""
        self.starts = before is None
        self.final = final
        self._before = before
        self._taken = 0
        self._kept: list[Tensor] = []

    @classmethod
    def of(cls, packed: Sequence[Tensor | None], *, final: bool) -> Carry:
        """For one item each; either all streams have started or none has."""
        before = [item for item in packed if item is not None]
        return cls(torch.stack(before) if before else None, final=final)

    def take(self, channels: int, length: int) -> Tensor:
        """`[B, channels, length]` of the piece before. Not at the start."""
        assert self._before is not None
        start, self._taken = self._taken, self._taken + channels * length
        return self._before[:, start : self._taken].unflatten(1, (channels, length))

    def keep(self, end: Tensor) -> None:
        """`[B, C, length]` for the next piece, copied: the signal it is the end of is large."""
        if not self.final:
            self._kept.append(end.flatten(1))

    def join(self, x: Tensor, length: int, *, left: int = 0, right: int = 0) -> Tensor:
        """`x` behind the last `length` values of the piece before, and keeps as many for the next.

        `left`: zeros before a stream, `right`: zeros after it.
        """
        batch, channels = x.shape[:2]
        parts = [x.new_zeros(batch, channels, left) if self.starts else self.take(channels, length), x]
        if self.final:
            parts.append(x.new_zeros(batch, channels, right))
        parts = [part for part in parts if part.shape[-1]]
        joined = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        self.keep(joined[..., joined.shape[-1] - length :])
        return joined

    def delay(self, x: Tensor, length: int) -> Tensor:
        """`x` later by `length` values, without zeros in front: the first piece is shorter, the final one longer."""
        joined = self.join(x, length)
        return joined if self.final else joined[..., : joined.shape[-1] - length]

    def packed(self) -> Tensor:
        """`[B, values]`: all that was kept."""
        return torch.cat(self._kept, dim=1)
