"""What stands for a CUDA graph where there is no GPU: the operations of one run, repeated on the very same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tape(TorchDispatchMode):
    """Records while it is entered. As in a CUDA graph, a replay reads what is then in the tensors that the recorded run
    read, and writes its results where that run did; no Python between the operations runs again."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable, tuple, dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, result))
        return result

    @torch.inference_mode()
    def replay(self) -> None:
        for func, args, kwargs, result in self._calls:
            for kept, fresh in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(kept, Tensor) and kept.data_ptr() != fresh.data_ptr():
                    kept.copy_(fresh)


class Recorder:
    """A `Capture` that counts."""

    def __init__(self) -> None:
        self.captured = 0

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.captured += 1
        with Tape() as tape:
            result = step()
        return tape.replay, result
