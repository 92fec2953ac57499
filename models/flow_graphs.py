"""The flow's transformer blocks, and what they do to each frame by itself as CUDA graphs, a set for each bucket.

A stream's keys and values lie in a ring of its own, whose address and extent change as it goes on: a graph of a whole
step would need them copied into storage of its own, as much as the attention reads. What lies between one attention
and the next knows nothing of streams. Its shape is the number of frames of a batch, whomever they belong to, and it is
most of a step's launches; so that is captured, while attention and CosyVoice 2's convolutions stay single launches.
`torch.compile` would need a compiler where the service runs, and its time at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from models.decode_graphs import Capture, capture_cuda
from models.packing import Packing

BUCKETS = (64, 128, 256, 512, 1024, 2048)  # frames: a hop of one stream has 50, 100 or 200


class Block(Protocol):
    """`own`: what this block alone is given, the same for all frames; `shared`: what all blocks are, `[N, ...]`."""

    def project(self, x: Tensor, *own_and_shared: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[R, N, C]` -> queries, keys, values `[R, N, heads, width]`."""

    def mix(self, x: Tensor, attended: Tensor, *own: Tensor) -> Tensor:
        """`[R, N, C]` and `[R, N, heads * width]` of its attention -> `[R, N, C]`."""


class BlockStack(nn.ModuleList):
    """Transformer blocks one after the other; with `graphs`, by these."""

    graphs: FrameGraphs | None = None

    def forward(
        self, x: Tensor, packing: Packing, own: Sequence[Sequence[Tensor]] | None = None, shared: Sequence[Tensor] = ()
    ) -> Tensor:
        """`x: [R, N, C]`; `own`: of each block."""
        given: Sequence[Sequence[Tensor]] = own if own is not None else [()] * len(self)
        if self.graphs is not None and x.shape[1] <= self.graphs.buckets[-1]:
            return self.graphs.run(list(self), x, packing, given, shared)  # type: ignore[arg-type]
        for block, more in zip(self, given, strict=True):
            x = block.mix(x, packing.attend(*block.project(x, *more, *shared)), *more)  # type: ignore[operator]
        return x


@dataclass(frozen=True)
class _Room:
    """What the graphs of one bucket read and write: the same for all blocks, which run one at a time."""

    x: Tensor
    own: tuple[Tensor, ...]
    shared: tuple[Tensor, ...]
    projected: tuple[Tensor, ...]
    attended: Tensor


_Replays = tuple[Callable[[], None], Callable[[], None]]  # of `project` and of `mix`


class FrameGraphs:
    """Graphs of the blocks of one estimator. What fills a bucket up is computed too, and nobody reads it."""

    def __init__(self, capture: Capture | None = None, buckets: Sequence[int] = BUCKETS) -> None:
        self.buckets = buckets
        # One pool: no graph needs anything from another's replay but what is in the room.
        self._capture = capture or partial(capture_cuda, pool=torch.cuda.graph_pool_handle())
        self._rooms: dict[tuple[int, int], _Room] = {}
        # By id: a block that was held here would hold itself, and a model that is let go its memory.
        self._replays: dict[tuple[int, int, int], _Replays] = {}

    def run(
        self,
        blocks: Sequence[Block],
        x: Tensor,
        packing: Packing,
        own: Sequence[Sequence[Tensor]],
        shared: Sequence[Tensor],
    ) -> Tensor:
        """As `BlockStack.forward`, of at most as many frames as the largest bucket has."""
        frames = x.shape[1]
        key = x.shape[0], next(size for size in self.buckets if size >= frames)
        if key not in self._rooms:
            self._rooms[key] = _room(blocks[0], key[1], x, own[0], shared)
        room = self._rooms[key]
        replays = [self._replays_of(block, key) for block in blocks]  # capturing overwrites the room: first of all
        room.x[:, :frames] = x
        for buffer, tensor in zip(room.shared, shared, strict=True):
            buffer[:frames] = tensor
        for (project, mix), given in zip(replays, own, strict=True):
            for buffer, tensor in zip(room.own, given, strict=True):
                buffer.copy_(tensor)
            project()
            q, k, v = (tensor[:, :frames] for tensor in room.projected)
            room.attended[:, :frames] = packing.attend(q, k, v)
            mix()
        return room.x[:, :frames].clone()

    def _replays_of(self, block: Block, key: tuple[int, int]) -> _Replays:
        place = (*key, id(block))
        if place not in self._replays:
            room = self._rooms[key]

            def project() -> Tensor:
                for buffer, tensor in zip(room.projected, block.project(room.x, *room.own, *room.shared), strict=True):
                    buffer.copy_(tensor)
                return room.projected[0]

            def mix() -> Tensor:
                return room.x.copy_(block.mix(room.x, room.attended, *room.own))

            self._replays[place] = self._capture(project)[0], self._capture(mix)[0]
        return self._replays[place]


def _room(block: Block, frames: int, x: Tensor, own: Sequence[Tensor], shared: Sequence[Tensor]) -> _Room:
    """For so many frames of what is like these."""
    wide = x.new_zeros(x.shape[0], frames, x.shape[2])
    each = tuple(tensor.new_zeros(tensor.shape) for tensor in own)
    all_frames = tuple(tensor.new_zeros(frames, *tensor.shape[1:]) for tensor in shared)
    projected = tuple(tensor.contiguous() for tensor in block.project(wide, *each, *all_frames))
    return _Room(wide, each, all_frames, projected, torch.zeros_like(projected[0]).flatten(2))
