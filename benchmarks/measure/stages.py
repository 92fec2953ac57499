"""How long a model's stages take while the engine works, and how many utterances share a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from models.cosyvoice import CosyVoice

PREFILL, DECODE, FLOW, VOCODER = "prefill", "decode", "flow", "vocoder"


@dataclass(frozen=True)
class Stage:
    """All calls of one stage together. `seconds` of wall time, `cpu` of this process's, both summed; `batch`: mean
    number of utterances in a call, `largest` the most."""

    name: str
    calls: int
    seconds: float
    cpu: float
    batch: float
    largest: int


class Stopwatch:
    """Counts calls by stage, on whichever thread they happen."""

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[float, float, int]]] = {}

    def stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(
                name,
                len(calls),
                sum(seconds for seconds, _, _ in calls),
                sum(cpu for _, cpu, _ in calls),
                sum(size for _, _, size in calls) / len(calls),
                max(size for _, _, size in calls),
            )
            for name, calls in self._calls.items()
        )

    def cpu(self, name: str) -> float:
        """Seconds that a stage took so far."""
        return sum(cpu for _, cpu, _ in self._calls.get(name, ()))

    def timed(self, name: str, function: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                _finish_device()
                record = time.perf_counter() - began, time.process_time() - cpu, size(*arguments, **named)
                self._calls.setdefault(name, []).append(record)

        return call


@contextmanager
def watch(model: CosyVoice) -> Iterator[Stopwatch]:
    """Time the calls of this model's networks until the end."""
    stopwatch, vocoder = Stopwatch(), model.token2wav.vocoder
    with ExitStack() as patches:

        def time_calls(owner: object, method: str, name: str, size: Callable[..., int]) -> None:
            timed = stopwatch.timed(name, getattr(owner, method), size)
            patches.enter_context(patch.object(owner, method, timed))

        time_calls(model.lm, "extend", PREFILL, lambda *_: 1)
        time_calls(model.lm, "decode", DECODE, lambda _, tokens: len(tokens))
        time_calls(model.token2wav.flow, "inference", FLOW, _length)
        time_calls(vocoder, "stream" if vocoder.causal else "inference", VOCODER, _length)
        yield stopwatch


def _length(items: Sized, *_: object) -> int:
    return len(items)


def _finish_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
