"""Decode steps as CUDA graphs: one launch in place of some four hundred, a graph for each size of batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.kv_cache import KVCache
from models.qwen2 import Span
from models.speech_lm import SpeechLM

BUCKETS = (1, 2, 4, 8, 16, 32, 64)

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]
"""Of a step without arguments: what repeats it, and the tensor that then holds its result."""


@dataclass(frozen=True)
class _Graph:
    tokens: Tensor  # `[bucket]`, read at every replay
    replay: Callable[[], None]
    logp: Tensor  # `[bucket, vocab]`, overwritten at every replay


class DecodeGraphs:
    """`SpeechLM.decode` for one cache. A batch runs in the smallest bucket that holds it, else without one.

    Rows that fill a bucket up decode what lies in the slots behind the batch: they write where the next token of that
    slot goes anyhow, and nobody reads their result. Graphs hold addresses, so those of a cache that has grown go.
    """

    def __init__(self, lm: SpeechLM, cache: KVCache, capture: Capture | None = None) -> None:
        self._lm = lm
        self._cache = cache
        self._capture = capture or capture_cuda
        self._graphs: dict[int, _Graph] = {}
        self._storage: object = None  # what the graphs read and write

    @torch.inference_mode()
    def decode(self, tokens: Tensor) -> Tensor:
        """As `SpeechLM.decode`; the result holds until the next call."""
        cache, count = self._cache, len(tokens)
        bucket = next((size for size in BUCKETS if size >= count), None)
        if bucket is None:
            return self._lm.decode(cache, tokens)
        cache.reserve_slots(bucket)
        self._lm.backbone.reserve_step(cache, max(count, min(bucket, cache.n)))
        if self._storage is not cache.keys:
            self._graphs.clear()
            self._storage = cache.keys
        graph = self._graphs.get(bucket)
        if graph is None:
            graph = self._graphs[bucket] = self._new(bucket)
        graph.tokens[:count].copy_(tokens, non_blocking=True)
        graph.replay()
        cache.advance_first(count)
        return graph.logp[:count]

    def _new(self, bucket: int) -> _Graph:
        cache = self._cache
        tokens = torch.zeros(bucket, dtype=torch.int64, device=cache.keys[0].device)
        span = Span(cache.capacity)
        return _Graph(tokens, *self._capture(lambda: self._lm.step(cache, tokens, span)))


def capture_cuda(step: Callable[[], Tensor], pool: Any = None) -> tuple[Callable[[], None], Tensor]:
    """A CUDA graph of `step`, which runs a few times before, so that libraries have chosen their kernels.

    `pool`: shared with graphs that never run at once with this one and do not need what it has left there.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Other threads may use the device meanwhile.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = step()
    return graph.replay, result
