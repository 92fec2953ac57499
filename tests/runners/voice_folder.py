"""Voices of made-up numbers, and other processes that work on the same folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

from models.conditioning import Conditioning
from runners.voice_store import ModelKey, VoiceStore

MODEL = ModelKey("tiny", 2, "encoders of tiny")
CONSENT = "I am the one who is heard, and I agree."


def store(folder: Path, model: ModelKey = MODEL) -> VoiceStore:
    return VoiceStore(folder, lambda: model)


def conditioning(seed: int = 0, tokens: int = 25) -> Conditioning:
    rng = np.random.default_rng(seed)
    return Conditioning(
        embedding=rng.normal(size=192).astype(np.float32),
        prompt_tokens=rng.integers(0, 6561, tokens).astype(np.int32),
        prompt_mel=rng.normal(size=(2 * tokens, 80)).astype(np.float32),
    )


def same(one: Conditioning, other: Conditioning) -> bool:
    return one.to_bytes() == other.to_bytes()


def in_child(work: Callable[[], object], uid: int | None = None) -> int:
    """The exit status of a process that did `work` (0: it returned true), or minus the signal that ended it."""
    return finished(start_child(work, uid))


def start_child(work: Callable[[], object], uid: int | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            if uid is not None:
                os.setuid(uid)
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return pid


def finished(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(step: int, work: Callable[[], object]) -> int:
    """`in_child`, with SIGKILL just before its `step`-th change of the disk, counted from 1."""

    def work_until() -> object:
        steps = 0

        def counted(change: Callable) -> Callable:
            def changes(*arguments, **options):
                nonlocal steps
                steps += 1
                if steps == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments, **options)

            return changes

        for name in ("replace", "unlink", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        return work()

    return in_child(work_until)
