"""Graphs decode what the model decodes; here a repeated call stands for a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.decode_graphs import BUCKETS, DecodeGraphs
from models.speech_lm import KVCache, SpeechLM
from tests.models.lm import load, prompt_speech, text_ids


class Recorder:
    """Captures as a CUDA graph does: a replay works on the storage of the capture, into the same result."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self.captured = 0

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.captured += 1
        storage, result = self._cache.keys, step()
        result.fill_(torch.nan)

        def replay() -> None:
            assert self._cache.keys is storage
            result.copy_(step())

        return replay, result


def begin(lm: SpeechLM, count: int, capacity: int = 256) -> KVCache:
    cache = KVCache(2, 2, 16, slots=3, capacity=capacity)
    text, speech = text_ids(2), prompt_speech(2)
    for i in range(count):
        lm.extend(cache, cache.add(), lm.build_input(text[: 3 + 4 * i], speech[: 7 * i]))
    return cache


def drawn(step: int, count: int) -> Tensor:
    return torch.randint(6561, (count,), generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("count", [1, 3, 5])
def test_graphs_decode_the_same(count: int) -> None:
    lm = load(2)
    plain, cache = begin(lm, count), begin(lm, count)
    recorder = Recorder(cache)
    graphs = DecodeGraphs(lm, cache, recorder)
    for step in range(10):
        tokens = drawn(step, count)
        torch.testing.assert_close(graphs.decode(tokens), lm.decode(plain, tokens), atol=1e-5, rtol=2e-7)
    assert cache.lengths == plain.lengths
    assert recorder.captured == 1


def test_sequences_join_and_leave_between_replays() -> None:
    lm = load(2)
    plain, cache = begin(lm, 5), begin(lm, 5)
    recorder = Recorder(cache)
    graphs = DecodeGraphs(lm, cache, recorder)

    def step(times: int) -> None:
        for _ in range(times):
            tokens = drawn(sum(cache.lengths), cache.n)
            torch.testing.assert_close(graphs.decode(tokens), lm.decode(plain, tokens), atol=1e-5, rtol=2e-7)

    step(3)
    for each in (plain, cache):
        each.remove(1)
    step(3)  # four rows, in the bucket of their own
    for each in (plain, cache):
        each.remove(3)
    step(3)  # three rows, and a slot that is empty
    for each in (plain, cache):
        lm.extend(each, each.add(), lm.build_input(text_ids(2)))
    step(3)
    assert recorder.captured == 2  # eight and four


def test_a_cache_that_grows_is_captured_anew() -> None:
    lm = load(2)
    plain, cache = begin(lm, 1, capacity=16), begin(lm, 1, capacity=16)
    recorder = Recorder(cache)
    graphs = DecodeGraphs(lm, cache, recorder)
    for step in range(40):
        tokens = drawn(step, 1)
        torch.testing.assert_close(graphs.decode(tokens), lm.decode(plain, tokens), atol=1e-5, rtol=2e-7)
    assert cache.capacity == 64
    assert recorder.captured == 3


def test_a_live_sequence_behind_the_batch_is_left_as_it_is() -> None:
    """Even one that has no room for the position that its row of the bucket writes."""
    lm = load(2)
    cache, plain = begin(lm, 3, capacity=64), begin(lm, 3, capacity=64)
    for each in (cache, plain):
        lm.extend(each, each.add(), lm.build_input(list(range(62))))
    assert cache.lengths[3] == cache.capacity
    graphs = DecodeGraphs(lm, cache, Recorder(cache))
    for step in range(4):
        graphs.decode(drawn(step, 3))
        lm.decode(plain, drawn(step, 3))
    assert cache.lengths == plain.lengths
    tokens = drawn(9, 4)
    torch.testing.assert_close(graphs.decode(tokens), lm.decode(plain, tokens), atol=1e-5, rtol=2e-7)


def test_a_batch_beyond_all_buckets_runs_without_a_graph() -> None:
    lm = load(2)
    count = BUCKETS[-1] + 1
    cache, plain = begin(lm, 0), begin(lm, 0)
    recorder = Recorder(cache)
    for each in (cache, plain):
        for _ in range(count):
            lm.extend(each, each.add(), lm.build_input([1, 2, 3]))
    tokens = drawn(0, count)
    assert torch.equal(DecodeGraphs(lm, cache, recorder).decode(tokens), lm.decode(plain, tokens))
    assert recorder.captured == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graphs_decode_what_single_launches_decode(dtype: torch.dtype) -> None:
    from models.config import load_config
    from tests.golden import golden

    lm = SpeechLM.load(load_config(golden(2).dir), dtype=dtype, device="cuda")
    plain, cache = lm.new_cache(), lm.new_cache()
    for each in (plain, cache):
        for i in range(3):
            lm.extend(each, each.add(), lm.build_input(text_ids(2)[: 5 + i]))
    graphs = DecodeGraphs(lm, cache)
    for step in range(10):
        tokens = drawn(step, 3)
        expected = lm.decode(plain, tokens)
        torch.testing.assert_close(
            graphs.decode(tokens), expected, atol=1e-3 if dtype == torch.float32 else 0.3, rtol=0
        )
