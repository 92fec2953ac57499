"""Frames of several utterances side by side, and what a stream keeps of its earlier frames.

Nearly everything in the flow's networks treats a frame by itself, so that one operation serves all utterances at once.
Only convolution and attention look across time; both ask `Packing` for the past of each utterance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q `[R, heads, n, width]`, k and v `[R, heads, N, width]` -> `[R, heads, n, width]`; the n are the last of the N."""


@dataclass(frozen=True)
class Memory:
    """What one network keeps of a stream, layer by layer in the order of use. It is replaced, never changed: who holds
    one has a snapshot, and streams may share it."""

    frames: int = 0
    inputs: tuple[Tensor, ...] = ()  # per convolution, [R, kernel - 1, C]: the last frames that went in
    keys: tuple[tuple[Tensor, Tensor], ...] = ()  # per attention, keys and values [R, heads, frames, width]

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in self.inputs) + sum(k.nbytes + v.nbytes for k, v in self.keys)


@dataclass(frozen=True)
class Window:
    """How far back attention sees: always the first `pinned` frames, and `recent` ones before the current chunk."""

    pinned: int
    recent: int


@dataclass(frozen=True)
class Span:
    """The new frames of one utterance. `memory`: it attends chunk by chunk and goes on from there; None: all of it is
    here, and every frame sees every other."""

    frames: int
    memory: Memory | None = None
    window: Window | None = None


class Packing:
    """One pass through one network over `[R, N, C]`, N the frames of all spans; its layers come in a fixed order."""

    def __init__(self, spans: Sequence[Span], chunk: int) -> None:
        self.spans = tuple(spans)
        self._chunk = chunk
        self._parts = []
        start = 0
        for span in spans:
            self._parts.append(_Part(span, slice(start, start + span.frames)))
            start += span.frames

    @property
    def positions(self) -> list[tuple[int, int]]:
        """Of each span: its first frame within its utterance, and the one after its last."""
        return [(part.before, part.before + part.span.frames) for part in self._parts]

    def windows(self, x: Tensor, kernel: int) -> Tensor:
        """`[R, N, C] -> [R, N, kernel * C]`: each frame behind its `kernel - 1` predecessors."""
        if kernel == 1:
            return x
        return _joined([windows(extended, kernel) for extended in self.extended(x, kernel - 1)])

    def extended(self, x: Tensor, reach: int) -> list[Tensor]:
        """Per span `[R, reach + n, C]`: its frames behind the `reach` before them, zeros before the first."""
        return [part.extend(x[:, part.where], reach) for part in self._parts]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention = F.scaled_dot_product_attention) -> Tensor:
        """`[R, N, heads, width]` each -> `[R, N, heads * width]`."""
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        mixed = []
        for part in self._parts:
            where = part.where
            mixed += part.attend(q[:, :, where], k[:, :, where], v[:, :, where], self._chunk, attention)
        return _joined([out.transpose(1, 2).flatten(2) for out in mixed])

    def memories(self) -> list[Memory]:
        """After the pass: what each span's stream goes on from; nothing for one that was whole."""
        return [part.kept() for part in self._parts]


class _Part:
    """A span in its place, while a pass goes through the layers."""

    def __init__(self, span: Span, where: slice) -> None:
        self.span = span
        self.where = where
        memory = span.memory
        self.before = 0 if memory is None else memory.frames
        self._inputs = iter(() if memory is None else memory.inputs)
        self._keys = iter(() if memory is None else memory.keys)
        self._new_inputs: list[Tensor] = []
        self._new_keys: list[tuple[Tensor, Tensor]] = []

    def extend(self, x: Tensor, reach: int) -> Tensor:
        past = next(self._inputs, None)
        extended = F.pad(x, (0, 0, reach, 0)) if past is None else torch.cat((past, x), dim=1)
        if self.span.memory is not None:
            # A copy: a view would keep all of the extended frames alive.
            self._new_inputs.append(extended[:, extended.shape[1] - reach :].clone())
        return extended

    def attend(self, q: Tensor, k: Tensor, v: Tensor, chunk: int, attention: Attention) -> list[Tensor]:
        if self.span.memory is None:
            return [attention(q, k, v)]
        past = next(self._keys, None)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        before, frames = k.shape[2] - q.shape[2], q.shape[2]
        mixed = []
        for start in range(0, frames, chunk):
            stop = min(start + chunk, frames)
            seen = self._seen(before + start, before + stop)
            mixed.append(attention(q[:, :, start:stop], _take(k, seen), _take(v, seen)))
        kept = self._seen(k.shape[2], k.shape[2])
        # Contiguous: a view of this pass's frames would keep those of its neighbours alive.
        self._new_keys.append((_take(k, kept).contiguous(), _take(v, kept).contiguous()))
        return mixed

    def _seen(self, start: int, stop: int) -> list[slice]:
        """Which of the held frames a chunk `start .. stop` sees."""
        window = self.span.window
        if window is None or start <= window.pinned + window.recent:
            return [slice(0, stop)]
        return [slice(0, window.pinned), slice(start - window.recent, stop)]

    def kept(self) -> Memory:
        return Memory(self.before + self.span.frames, tuple(self._new_inputs), tuple(self._new_keys))


def windows(x: Tensor, kernel: int) -> Tensor:
    """`[R, M + kernel - 1, C] -> [R, M, kernel * C]`: each frame beside its `kernel - 1` successors."""
    if kernel == 1:
        return x
    frames = x.shape[1] - kernel + 1
    return torch.cat([x[:, shift : shift + frames] for shift in range(kernel)], dim=-1)


def _take(frames: Tensor, where: list[slice]) -> Tensor:
    return _joined([frames[:, :, part] for part in where], dim=2)


def _joined(parts: list[Tensor], dim: int = 1) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
