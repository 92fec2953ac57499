"""The end of a process that can never serve: one sentence for the person who reads the log."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

EX_CONFIG = 78
PREFIX = "cosyserve: error: "


def die(message: str) -> NoReturn:
    """Print the sentence and end this process at once: a cluster restarts the pod, a launcher shows the sentence."""
    print(PREFIX + message, file=sys.stderr, flush=True)  # noqa: T201
    os._exit(EX_CONFIG)
