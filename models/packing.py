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

from models.key_values import KeyValues, Window

Attention = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]
"""q `[R, heads, n, width]`, k and v `[R, heads, N, width]`, what is added to the scores `[n, N]` -> like q.

Without a window the n are the last of the N; with one, the N are in no order.
"""

_CHUNKS_AT_ONCE = 4  # that attend together: more would compute too much that is masked, fewer would be small products


@dataclass(frozen=True)
class Memory:
    """What one network keeps of a stream, layer by layer in the order of use: a snapshot, which streams may share."""

    frames: int = 0
    inputs: tuple[Tensor, ...] = ()  # per convolution, [R, kernel - 1, C]: the last frames that went in
    attended: tuple[KeyValues, ...] = ()  # per attention

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in self.inputs) + sum(held.bytes for held in self.attended)


@dataclass(frozen=True)
class Span:
    """The new frames of one utterance. `memory`: it attends chunk by chunk and goes on from there; None: all of it is
    here, and every frame sees every other. `expected`: frames that it may come to, which memory is taken for at once.
    """

    frames: int
    memory: Memory | None = None
    window: Window | None = None
    expected: int = 0


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
        self._attended = iter(() if memory is None else memory.attended)
        self._new_inputs: list[Tensor] = []
        self._newly_attended: list[KeyValues] = []
        self._views: dict[tuple[int, int, int], tuple[int, Tensor | None]] = {}

    def extend(self, x: Tensor, reach: int) -> Tensor:
        past = next(self._inputs, None)
        extended = F.pad(x, (0, 0, reach, 0)) if past is None else torch.cat((past, x), dim=1)
        if self.span.memory is not None:
            # A copy: a view would keep all of the extended frames alive.
            self._new_inputs.append(extended[:, extended.shape[1] - reach :].clone())
        return extended

    def attend(self, q: Tensor, k: Tensor, v: Tensor, chunk: int, attention: Attention) -> list[Tensor]:
        if self.span.memory is None:
            return [attention(q, k, v, None)]
        past, window = next(self._attended, None), self.span.window
        held = KeyValues.of(k, v, window) if past is None else past.followed_by(k, v, window, self.span.expected)
        self._newly_attended.append(held)
        mixed = []
        for start in range(self.before, held.frames, chunk * _CHUNKS_AT_ONCE):
            stop = min(start + chunk * _CHUNKS_AT_ONCE, held.frames)
            slots, mask = self._view(held, start, stop, chunk, q)
            keys, values = held.ring.keys[:, :, :slots], held.ring.values[:, :, :slots]
            mixed.append(attention(q[:, :, start - self.before : stop - self.before], keys, values, mask))
        return mixed

    def _view(self, held: KeyValues, start: int, stop: int, chunk: int, like: Tensor) -> tuple[int, Tensor | None]:
        """How many slots to look at, and how: the same for most layers, whose rings are alike."""
        alike = (held.ring.slots, held.ring.pinned, start)
        if alike not in self._views:
            self._views[alike] = held.slots_until(stop), held.visible(start, stop, chunk, self.span.window, like)
        return self._views[alike]

    def kept(self) -> Memory:
        return Memory(self.before + self.span.frames, tuple(self._new_inputs), tuple(self._newly_attended))


def windows(x: Tensor, kernel: int) -> Tensor:
    """`[R, M + kernel - 1, C] -> [R, M, kernel * C]`: each frame beside its `kernel - 1` successors."""
    if kernel == 1:
        return x
    frames = x.shape[1] - kernel + 1
    return torch.cat([x[:, shift : shift + frames] for shift in range(kernel)], dim=-1)


def _joined(parts: list[Tensor], dim: int = 1) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)
