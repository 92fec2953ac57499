"""How long a piece of work keeps every other thread of the process waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def longest_stall(work: Callable[[], object]) -> float:
    """Seconds. A regular expression, or a function of C, lets no other thread run until it is done."""
    longest, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal longest
        last = time.monotonic()
        while not done.is_set():
            time.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return longest
