"""The cache grows, stays whole when it cannot, and empty slots are as new."""

from __future__ import annotations

import pytest
import torch

from models.kv_cache import KVCache


def test_a_cache_that_runs_out_of_memory_while_growing_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KVCache(2, 1, 4, slots=2, capacity=8)
    cache.add()
    before = [storage.shape for storage in (*cache.keys, *cache.values)]
    calls = iter(range(10))
    new_zeros = torch.Tensor.new_zeros

    def failing(self: torch.Tensor, *arguments, **options) -> torch.Tensor:
        if next(calls) == 2:
            raise MemoryError("injected")
        return new_zeros(self, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(torch.Tensor, "new_zeros", failing)
        cache.reserve(100)
    assert [storage.shape for storage in (*cache.keys, *cache.values)] == before
    cache.reserve(100)
    assert {storage.shape[2] for storage in (*cache.keys, *cache.values)} == {128}


def test_there_is_room_for_slots_that_are_not_live() -> None:
    cache = KVCache(2, 1, 4, slots=1, capacity=8)
    cache.add()
    cache.advance(0, 3)
    cache.reserve_slots(4)
    assert cache.n == 1
    assert {storage.shape[0] for storage in (*cache.keys, *cache.values)} == {4}
    assert cache.next_positions(4).tolist() == [3, 0, 0, 0]
    assert cache.rows(4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("slot", "left"), [(0, [5, 3, 0]), (2, [1, 3, 0])])
def test_a_slot_that_was_left_is_written_from_its_start(slot: int, left: list[int]) -> None:
    cache = KVCache(2, 1, 4, slots=3, capacity=8)
    for length in (1, 3, 5):
        cache.advance(cache.add(), length)
    cache.remove(slot)
    assert cache.next_positions(3).tolist() == left


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_a_sequence_that_went_non_finite_leaves_nothing_behind(slot: int) -> None:
    cache = KVCache(2, 1, 4, slots=3, capacity=8)
    for length in (5, 3, 1):
        cache.advance(cache.add(), length)
    for storage in (*cache.keys, *cache.values):
        storage[slot, :, : cache.lengths[slot] + 1] = float("nan")
    cache.advance(slot, 1)
    cache.take_back(slot)
    cache.remove(slot)
    assert all(storage.isfinite().all() for storage in (*cache.keys, *cache.values))


def test_a_position_that_is_taken_back_is_written_again() -> None:
    cache = KVCache(2, 1, 4, slots=2, capacity=8)
    for length in (1, 3):
        cache.advance(cache.add(), length)
    cache.advance_first(2)
    cache.take_back(0)
    assert cache.lengths == [1, 4]
    assert cache.next_positions(2).tolist() == [1, 4]


def test_what_a_long_sequence_took_is_given_back_when_nobody_is_live() -> None:
    cache = KVCache(2, 1, 4, slots=2, capacity=8)
    cache.reserve(100)
    slot = cache.add()
    with pytest.raises(ValueError, match="1 sequences are live"):
        cache.shrink(16)
    cache.remove(slot)
    cache.shrink(65)
    assert cache.capacity == 128
    cache.shrink(10)
    assert [tuple(storage.shape) for storage in (*cache.keys, *cache.values)] == [(2, 1, 16, 4)] * 4
    cache.shrink(100)
    assert cache.capacity == 16
