"""One line of a terminal that shows that something is going on."""

from __future__ import annotations

import sys

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

    def clear(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
