"""Keys and values of a stream's earlier frames, as its attention keeps them: written in place, in a ring.

Copying them at every hop would cost as much as a good part of the attention itself, and twice their memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.device import to_device

_GROWTH = 1.5


@dataclass(frozen=True)
class Window:
    """How far back attention sees: always the first `pinned` frames, and `recent` ones before the current chunk.

    `ahead`: frames that one pass brings at most; a longer one works as well, but the ring is made anew for it.
    """

    pinned: int
    recent: int
    ahead: int = 0


class Ring:
    """`[R, heads, slots, width]` twice. Frame n is in slot n as long as there are as many slots; then the first
    `pinned` frames stay, and the others go round in the slots behind them."""

    def __init__(self, like: Tensor, slots: int, pinned: int) -> None:
        shape = (*like.shape[:2], slots, like.shape[3])
        self.keys, self.values = like.new_empty(shape), like.new_empty(shape)
        self.slots = slots
        self.pinned = min(pinned, slots)
        self.end = 0  # the frame after the last

    @property
    def wraps(self) -> bool:
        return self.end > self.slots

    def place(self, frames: Tensor) -> Tensor:
        """The slots of `frames`."""
        if self.slots == self.pinned:
            return frames
        behind = self.pinned + (frames - self.pinned) % (self.slots - self.pinned)
        return torch.where(frames < self.slots, frames, behind)

    def frames(self, slots: int) -> Tensor:
        """The frames in the first `slots` slots."""
        every = torch.arange(slots)
        if not self.wraps:
            return every
        last = self.end - 1
        back = (last - every) % (self.slots - self.pinned)
        return torch.where(every < self.pinned, every, last - back)

    def write(self, start: int, keys: Tensor, values: Tensor) -> None:
        """Frames from `start` on, `[R, heads, n, width]`."""
        done, count = 0, keys.shape[2]
        while done < count:
            frame = start + done
            slot = frame if frame < self.slots else self.pinned + (frame - self.pinned) % (self.slots - self.pinned)
            size = min(count - done, self.slots - slot)
            self.keys[:, :, slot : slot + size] = keys[:, :, done : done + size]
            self.values[:, :, slot : slot + size] = values[:, :, done : done + size]
            done += size
        self.end = start + count


@dataclass(frozen=True, eq=False)
class KeyValues:
    """A stream's first `frames` frames, as far as they are still in view.

    What follows on them is written into the same ring. They can be followed on again, from a copy, until the pass
    after the next has been written.
    """

    frames: int
    ring: Ring

    @property
    def bytes(self) -> int:
        """Of the ring, which the snapshots of one stream share."""
        return self.ring.keys.nbytes + self.ring.values.nbytes

    @staticmethod
    def of(keys: Tensor, values: Tensor, window: Window | None) -> KeyValues:
        """A stream's first frames, `[R, heads, n, width]`, in a ring of just their size."""
        ring = Ring(keys, keys.shape[2], 0 if window is None else window.pinned)
        ring.write(0, keys, values)
        return KeyValues(keys.shape[2], ring)

    def followed_by(self, keys: Tensor, values: Tensor, window: Window | None, expected: int = 0) -> KeyValues:
        """With `[R, heads, n, width]` more. A ring that has to be made anew is made for `expected` frames in all."""
        count = keys.shape[2]
        needed = slots_for(self.frames, count, window)
        ring = self.ring
        if ring.end != self.frames or ring.slots < needed:
            wanted = every = self.frames + count
            if expected >= every:
                wanted = expected
            elif ring.slots < needed:
                wanted = max(every, int(_GROWTH * ring.slots))
            ring = self._copied(max(needed, most_slots(wanted, window)), window)
        ring.write(self.frames, keys, values)
        return KeyValues(self.frames + count, ring)

    def _copied(self, slots: int, window: Window | None) -> Ring:
        ring = Ring(self.ring.keys, slots, 0 if window is None else window.pinned)
        ring.end = self.frames
        halves = (self.ring.keys, ring.keys), (self.ring.values, ring.values)
        if not (self.ring.wraps or ring.wraps):
            for old, new in halves:
                new[:, :, : self.frames] = old[:, :, : self.frames]
            return ring
        pinned, recent = (0, self.frames) if window is None else (window.pinned, window.recent)
        every = torch.arange(self.frames)
        seen = every[(every < pinned) | (every >= self.frames - recent)]
        source, target = self.ring.place(seen), ring.place(seen)
        if not torch.equal(self.ring.frames(self.ring.slots)[source], seen):
            raise RuntimeError("a stream was followed on from a state older than its last hop")
        for old, new in halves:
            new.zero_()  # what attention does not see must still be a number
            new.index_copy_(2, target.to(new.device), old.index_select(2, source.to(old.device)))
        return ring

    def visible(self, start: int, stop: int, chunk: int, window: Window | None, like: Tensor) -> Tensor | None:
        """What frames `start .. stop` see of the first `slots_until(stop)` slots: `[stop - start, slots]` to be added
        to the scores, None where it is everything. They attend chunk by chunk, and `start` begins one."""
        held = self.ring.frames(self.slots_until(stop))[None]  # on the CPU: nothing here waits for the device
        row = torch.arange(start, stop)[:, None]
        begin = start + (row - start) // chunk * chunk
        seen = held < begin + chunk
        if window is not None:
            seen = seen & ((held < window.pinned) | (held >= begin - window.recent))
        if bool(seen.all()):
            return None
        return to_device(torch.zeros(seen.shape, dtype=like.dtype).masked_fill_(~seen, float("-inf")), like.device)

    def slots_until(self, stop: int) -> int:
        """How many of the first slots hold what frames before `stop` may see."""
        return self.ring.slots if self.ring.wraps else stop


def slots_for(frames: int, count: int, window: Window | None) -> int:
    """The least that a ring must have so that `count` frames can follow on `frames`, which stay in view."""
    every = frames + count
    return every if window is None else min(every, window.pinned + window.recent + count)


def most_slots(frames: int, window: Window | None) -> int:
    """What the ring of a stream of `frames` frames has, if as many were expected."""
    return frames if window is None else min(frames, window.pinned + window.recent + window.ahead)
