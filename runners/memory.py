"""The engine's memory, given out before it is used: an utterance begins when there is room for all it may come to."""

from __future__ import annotations

from pathlib import Path

import torch

_GIVEN_OUT = 0.6  # of what is free: the rest is for the work itself, the other processes, and for being wrong
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


class MemoryBudget:
    """`limit` bytes; None: unlimited. Whoever is alone always gets what it needs."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.reserved = 0

    def reserve(self, size: int) -> bool:
        if self.limit is not None and self.reserved and self.reserved + size > self.limit:
            return False
        self.reserved += size
        return True

    def release(self, size: int) -> None:
        self.reserved -= size


def budget_bytes(device: torch.device) -> int | None:
    """What may be given out on a device beside all that is loaded. None where the system does not tell."""
    if device.type == "cuda":
        return int(_GIVEN_OUT * torch.cuda.mem_get_info(device)[0])
    free = [size for size in (_free_in_cgroup(), _free_on_machine()) if size is not None]
    return max(0, int(_GIVEN_OUT * min(free))) if free else None


def _free_in_cgroup() -> int | None:
    """What the container's limit leaves; file pages that can be dropped count as free."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return None
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return int(limit) - int(stat["anon"])
    except (OSError, ValueError, KeyError):
        return None


def _free_on_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None
