"""What the processes of a service hold: memory, threads, open files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from launch.server import Server

MIB = 2**20
_SERVICE = "--service-name"  # of a worker's command line, before the name


@dataclass(frozen=True)
class Held:
    """`rss`, `uss` (what is nobody else's too): MiB."""

    rss: float
    uss: float
    threads: int
    fds: int


@dataclass(frozen=True)
class Sample:
    """`at`: seconds on time.monotonic's clock. `held`: by process."""

    at: float
    held: Mapping[str, Held]


class Processes:
    """Those of `server`, as they are now: one that another takes the place of is missed."""

    def __init__(self, server: Server) -> None:
        assert server.process is not None
        parent = psutil.Process(server.process.pid)
        self._processes = {"parent": parent}
        for child in parent.children(recursive=True):
            words = child.cmdline()
            self._processes[words[words.index(_SERVICE) + 1] if _SERVICE in words else f"pid {child.pid}"] = child

    def sample(self) -> Sample:
        """Raises psutil.NoSuchProcess where one has ended."""
        return Sample(time.monotonic(), {name: _held(process) for name, process in self._processes.items()})


def _held(process: psutil.Process) -> Held:
    memory = process.memory_full_info()
    return Held(memory.rss / MIB, memory.uss / MIB, process.num_threads(), process.num_fds())
