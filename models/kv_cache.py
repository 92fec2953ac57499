"""Keys and values of all live sequences, preallocated, in slots that stay contiguous as sequences come and go."""

from __future__ import annotations

import torch
from torch import Tensor


class KVCache:
    """Live sequences occupy slots 0..n-1. Storage doubles in slots and in length when it must; nothing is capped.

    `keys`, `values`: one `[slots, kv_heads, capacity, head_dim]` per layer. Positions beyond a sequence's length
    are always finite (zero or another's stale but finite data would do), for masked attention multiplies them by 0.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        *,
        slots: int,
        capacity: int = 256,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        shape = (slots, kv_heads, capacity, head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.lengths: list[int] = []
        self._positions = torch.zeros(slots, dtype=torch.int64, device=device)  # = lengths, where kernels need it
        self._rows = torch.arange(slots, device=device)

    @property
    def dtype(self) -> torch.dtype:
        return self.keys[0].dtype

    @property
    def capacity(self) -> int:
        """Positions of each slot."""
        return self.keys[0].shape[2]

    @property
    def n(self) -> int:
        """Live sequences."""
        return len(self.lengths)

    def add(self) -> int:
        """A slot for a new, empty sequence."""
        slot = self.n
        if slot == len(self._rows):
            self._grow(slots=max(1, 2 * slot))
        self._positions[slot] = 0
        self.lengths.append(0)
        return slot

    def remove(self, slot: int) -> int | None:
        """End the sequence in `slot`. The last live one moves into the hole: returns the slot it came from."""
        last = self.n - 1
        if not 0 <= slot <= last:
            raise IndexError(f"slot {slot} of {self.n} live sequences")
        size, moved = self.lengths[slot], self.lengths[last]
        for storage in (*self.keys, *self.values):
            if slot != last:
                storage[slot, :, :moved] = storage[last, :, :moved]
                storage[slot, :, moved : size + 1] = 0
            # A sequence that went non-finite leaves nothing behind, nor in a position that was taken back.
            storage[last, :, : moved + 1] = 0
        self._positions[slot] = moved
        self._positions[last] = 0
        self.lengths[slot] = moved
        self.lengths.pop()
        return last if slot != last else None

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` positions."""
        capacity = self.capacity
        if length > capacity:
            while capacity < length:
                capacity *= 2
            self._grow(capacity=capacity)

    def shrink(self, length: int) -> None:
        """Give back what was reserved beyond twice `length` positions. Only while no sequence is live."""
        if self.n:
            raise ValueError(f"{self.n} sequences are live")
        capacity = self.capacity
        while capacity // 2 >= length:
            capacity //= 2
        if capacity < self.capacity:
            self._resize(len(self._rows), capacity)

    def reserve_slots(self, count: int) -> None:
        """Make room for `count` sequences, live or not."""
        if count > len(self._rows):
            self._grow(slots=count)

    def advance(self, slot: int, count: int) -> None:
        """`count` positions were written to `slot`."""
        self.lengths[slot] += count
        self._positions[slot] += count

    def take_back(self, slot: int) -> None:
        """The last position of `slot` does not count: what comes next overwrites it."""
        self.advance(slot, -1)

    def advance_first(self, count: int) -> None:
        """One position was written to each of the first `count` slots."""
        for slot in range(count):
            self.lengths[slot] += 1
        self._positions[:count] += 1

    def next_positions(self, count: int) -> Tensor:
        """`[count]` int64: where the next step of the first `count` sequences writes."""
        return self._positions[:count]

    def rows(self, count: int) -> Tensor:
        """`[count]` int64: 0..count-1."""
        return self._rows[:count]

    def _grow(self, *, slots: int = 0, capacity: int = 0) -> None:
        self._resize(max(slots, len(self._rows)), max(capacity, self.capacity))

    @torch.inference_mode(False)  # what grows in a step can also be changed outside of one
    def _resize(self, slots: int, capacity: int) -> None:
        _, heads, old, size = self.keys[0].shape
        # All new storage first, then the change of all of it: running out of memory leaves the old cache whole.
        changed = []
        for storage in (*self.keys, *self.values):
            changed.append(storage.new_zeros((slots, heads, capacity, size)))
            if self.n:
                changed[-1][: self.n, :, :old] = storage[: self.n]
        positions = self._positions.new_zeros(slots)
        positions[: self.n] = self._positions[: self.n]
        rows = torch.arange(slots, device=positions.device)
        layers = len(self.keys)
        self.keys, self.values = changed[:layers], changed[layers:]
        self._positions, self._rows = positions, rows
