"""Work beside other work on a CUDA device: a stream for a thread, and copies by way of pinned memory. For any other
device there is nothing to do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def own_stream(device: torch.device) -> None:
    """What this thread starts from now on runs beside what others start, and after what was started before."""
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.default_stream(device))
        torch.cuda.set_stream(stream)


def finish(device: torch.device) -> None:
    """Wait for what this thread has started, and for nobody else's work."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on `device`. The host does not wait for what is queued there; whoever works in the same
    thread finds it copied."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of one device on the CPU, complete: all are waited for at once."""
    if not tensors or tensors[0].device.type != "cuda":
        return [tensor.cpu() for tensor in tensors]
    pinned = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    for host, tensor in zip(pinned, tensors, strict=True):
        host.copy_(tensor, non_blocking=True)
    finish(tensors[0].device)
    return pinned
