"""The cache stays whole when it cannot grow."""

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
