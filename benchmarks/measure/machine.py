"""The machine and the software that figures were measured with."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch


@dataclass(frozen=True)
class Machine:
    """`load`: the system's load average over a minute when the run began; above 1 or so, bare times mean little."""

    processor: str
    cores: int
    memory_gb: float
    threads: int
    load: float
    torch: str
    python: str

    @classmethod
    def of(cls, threads: int) -> Machine:
        return cls(
            processor=_processor(),
            cores=os.cpu_count() or 1,
            memory_gb=psutil.virtual_memory().total / 1e9,
            threads=threads,
            load=os.getloadavg()[0],
            torch=torch.__version__,
            python=platform.python_version(),
        )


def peak_memory_gb() -> float:
    """Most of this process that was in memory at once; weights mapped from files count while they are."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if platform.system() == "Darwin" else 1024) / 1e9


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
