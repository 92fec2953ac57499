"""Settings of the runners, from the environment, with the defaults that were measured."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Cores this process may really use: affinity and the cgroup's CPU quota, whichever is smaller, at least 1.

    More threads than that makes every step wait for a thread that has no core to run on.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    try:
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return max(1, _integer("COSYSERVE_THREADS", cores))


def engine_settings():
    """EngineSettings with COSYSERVE_MAX_LIVE and COSYSERVE_MAX_REQUESTS applied."""
    from runners.scheduler import EngineSettings

    default = EngineSettings()
    return EngineSettings(
        max_live=_integer("COSYSERVE_MAX_LIVE", default.max_live),
        max_requests=_integer("COSYSERVE_MAX_REQUESTS", default.max_requests),
    )


def _integer(name: str, default: int) -> int:
    value = os.environ.get(name)
    if not value:
        return default
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise SystemExit(f"cosyserve: error: {name}={value!r} is not a whole number of at least 1")
    return number
