"""What a person at a terminal sees: one line that shows that something is going on, and errors as sentences."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from launch.server import LaunchError

_SPINNER = "|/-\\"


class ProgressLine:
    """Rewrites one line in place on a terminal; elsewhere (a log, CI) prints each new stage once."""

    def __init__(self) -> None:
        self._tick = 0
        self._stage = ""
        self._live = sys.stderr.isatty()

    def show(self, stage: str, detail: str = "") -> None:
        if self._live:
            self._tick += 1
            spinner = _SPINNER[self._tick % len(_SPINNER)]
            print(f"\r\x1b[2K{spinner} {stage} {detail}", end="", file=sys.stderr, flush=True)
        elif stage != self._stage:
            print(f"{stage} ...", file=sys.stderr, flush=True)
        self._stage = stage

    def starting(self, elapsed: float) -> None:
        self.show("starting the service", f"{elapsed:.0f} s")

    def clear(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def run(name: str, command: Callable[[ProgressLine], None]) -> int:
    """The exit status of `command`. SIGTERM and SIGHUP end it as Ctrl-C does, so that what it started is stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    progress = ProgressLine()
    try:
        command(progress)
    except LaunchError as error:
        progress.clear()
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.clear()
        return 130
    return 0
