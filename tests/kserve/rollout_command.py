"""Runs the rollout command as a person would: in a process of its own, judged by exit code, stdout and stderr.

Importing the SDK takes seconds. So the processes are forked from one that has imported it already (multiprocessing's
forkserver), and then run the script from its path with its own arguments.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "kserve" / "rollout.py"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["kserve", "kubernetes.client", "httpx", "yaml"])


@dataclass(frozen=True)
class Outcome:
    code: int | None
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.err, self.err


class Running:
    """A command under way; `log`: what its stdout is, instead of a file; `ignored`: a signal, as nohup ignores one."""

    def __init__(
        self, folder: Path, arguments: list[str], stdin: str, log: Path | None = None, ignored: int | None = None
    ) -> None:
        own = Path(tempfile.mkdtemp(dir=folder))
        self._out, self._err, entry = own / "stdout", own / "stderr", own / "stdin"
        entry.write_text(stdin)
        for file in (self._out, self._err):
            file.write_text("")
        files = [str(path) for path in (entry, log or self._out, self._err)]
        self._process: ForkServerProcess = _FORKS.Process(target=_become, args=(str(SCRIPT), arguments, files, ignored))
        self._process.start()

    def wait(self, timeout: float = 30.0) -> Outcome:
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"the command did not end: {self._out.read_text()}{self._err.read_text()}")
        return Outcome(self._process.exitcode, self._out.read_text(), self._err.read_text())

    def wait_line(self, words: str, timeout: float = 20.0) -> None:
        """Until `words` stand on stdout."""

        def said() -> bool:
            alive = self._process.is_alive()
            found = words in self._out.read_text()
            assert found or alive, f"ended without {words!r}: {self._out.read_text()}{self._err.read_text()}"
            return found

        wait_until(said, f"{words!r} on stdout", timeout)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(10)

    def interrupt(self, number: int = signal.SIGINT) -> Outcome:
        """Ctrl-C, or another signal."""
        self.signal(number)
        return self.wait()

    def signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.02)


def _become(script: str, arguments: list[str], files: list[str], ignored: int | None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what a test run under nohup would not have
    if ignored is not None:
        signal.signal(ignored, signal.SIG_IGN)
    for number, path in enumerate(files):
        handle = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
    # They stay open as long as the process.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = [script, *arguments]
    sys.path[0:0] = [str(Path(script).parent)]
    runpy.run_path(script, run_name="__main__")
