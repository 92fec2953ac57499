"""One step of the engine: what computes on the device's thread, and what takes its result on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runners.sequence import Job


@dataclass(frozen=True)
class Step:
    """`compute` runs on the device's thread, `apply` takes its result on the event loop; when either raises, `owner` is
    ended.

    `jobs`: whom it works for. `stage`: what it is; None: `compute` itself records what it does. `aside`: the steps
    after it do not wait for it.
    """

    compute: Callable[[], Any]
    apply: Callable[[Any], None]
    owner: Job
    jobs: Sequence[Job]
    stage: str | None = None
    aside: bool = False
