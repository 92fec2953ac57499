"""Start `bentoml serve` in a process group of its own, wait until it is ready, stop it: whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from api.auth import KeyRing
from api.exposure import check_exposure, host_and_port
from api.oip.grpc_settings import grpc_address
from models.config import check_files, load_config
from models.errors import ModelError
from runners.fatal import PREFIX
from runners.model_folder import model_folder

ROOT = Path(__file__).resolve().parent.parent
MIN_FREE_MEGABYTES = 200
_EVERY_ADDRESS = {"0.0.0.0", "::"}
_ERROR = re.compile(re.escape(PREFIX) + "(.*)")


class LaunchError(Exception):
    """The service cannot start; the message is a sentence that says what to do."""


def check(host: str, port: int) -> None:
    """Refuse early what would fail late: a broken MODEL_DIR, a port in use, a full disk, a server open to everybody.

    Raises LaunchError.
    """
    try:
        check_files(load_config(model_folder()))
        grpc = grpc_address()
        keys = KeyRing.from_environment()
    except ModelError as error:
        raise LaunchError(error.message) from error
    except ValueError as error:
        raise LaunchError(str(error)) from error
    taken = _check_port(host, port) if port else set()
    hosts = [host]
    if grpc is not None:
        grpc_host, grpc_port = host_and_port(grpc)
        hosts.append(grpc_host)
        asked = _check_port(grpc_host, grpc_port, "GRPC_")
        if grpc_port == port and (taken & asked or (taken | asked) & _EVERY_ADDRESS):
            raise LaunchError(f"Port {port} cannot be that of HTTP and of gRPC: choose another one with GRPC_PORT=...")
    try:
        check_exposure(hosts, keys)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    for folder in (ROOT, Path(tempfile.gettempdir())):
        free = shutil.disk_usage(folder).free // 2**20
        if free < MIN_FREE_MEGABYTES:
            raise LaunchError(
                f"Only {free} MB are free on the disk of {folder}; free at least {MIN_FREE_MEGABYTES} MB."
            )


def _check_port(host: str, port: int, prefix: str = "") -> set[str]:
    """The addresses of `host` at which the port is free. `prefix`: of the variables that chose them.

    Raises LaunchError where it is in use at one, or there is none: a name may have one that this machine has not.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise LaunchError(f"{prefix}HOST={host} is not an address of this machine.") from error
    free: set[str] = set()
    problem: OSError | None = None
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
            free.add(str(address[0]))
        except OSError as error:
            if problem is None or error.errno == errno.EADDRINUSE:
                problem = error
    if problem is not None and (not free or problem.errno == errno.EADDRINUSE):
        raise LaunchError(
            f"Port {port} on {host} cannot be used ({problem.strerror}): choose another one with {prefix}PORT=..."
        ) from problem
    return free


def address(default_port: int) -> tuple[str, int]:
    """HOST and PORT of the environment. Raises LaunchError."""
    host, port = os.environ.get("HOST") or "127.0.0.1", os.environ.get("PORT") or str(default_port)
    if not port.isascii() or not port.isdigit() or not int(port) < 2**16:
        raise LaunchError(f"PORT={port} is not a port: give a number from 1 to 65535.")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LaunchError(f"HOST={host} is not an address of this machine.") from error
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)  # clients take a name for its IPv4 address
    return str(first[4][0]), int(port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """The service as a child process. A context manager: it is stopped when the block ends.

    `env`: beside this process's environment, without what is None.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        target: str = ".",
        env: Mapping[str, str | None] | None = None,
        log: Path | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.host, self.port = host, port or free_port()
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        self.url = f"http://{f'[{reached}]' if ':' in reached else reached}:{self.port}"
        self._target, self._cwd = target, cwd
        self._scratch = Path(tempfile.mkdtemp(prefix="cosyserve-"))
        self.log = log or self._scratch / "server.log"
        # A BENTOML_HOME of its own: a second server with the same one would wipe the first one's metrics.
        wanted = {
            **os.environ,
            "BENTOML_HOME": str(self._scratch),
            "BENTOML_DO_NOT_TRACK": "true",
            **(env or {}),
        }
        self._env = {name: value for name, value in wanted.items() if value is not None}
        if self._env.get("MODEL_DIR"):  # a tag is looked up in this process's model store, not in the scratch one
            self._env["MODEL_DIR"] = str(model_folder(self._env["MODEL_DIR"]))
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "bentoml", "serve", self._target, "--host", self.host]
        command += ["--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout: float = 300, progress: Callable[[float], None] | None = None) -> None:
        """Return once /readyz says 200. Raises LaunchError with the service's own sentence if it cannot start."""
        assert self.process is not None
        began = time.monotonic()
        while True:
            elapsed = time.monotonic() - began
            if progress is not None:
                progress(elapsed)
            if found := _ERROR.search(self.log.read_text(errors="replace")):
                raise LaunchError(found[1])
            if self.process.poll() is not None:
                raise LaunchError(f"The service stopped while starting; its last words:\n{self.tail()}")
            if elapsed > timeout:
                raise LaunchError(f"The service was not ready after {timeout:.0f} s:\n{self.tail()}")
            if self.is_ready():
                return
            time.sleep(0.1)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/readyz", timeout=6) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, grace: float | None = 20) -> int | None:
        """SIGTERM; after `grace` seconds (None: when all streams have finished) SIGKILL to what is left.

        Returns the exit status, None if it had to be killed. An exception on the way (a second Ctrl-C) kills at once.
        """
        status = None
        if self.process is not None:
            # Workers have process groups of their own and outlive a parent that dies: they are remembered first.
            family: list[psutil.Process] = []
            with contextlib.suppress(psutil.NoSuchProcess):
                parent = psutil.Process(self.process.pid)
                family = [*parent.children(recursive=True), parent]
            try:
                if self.process.poll() is None:
                    self.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = self.process.wait(grace)
            finally:
                for process in family:  # nothing happens to those that have gone
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                self.process.wait()
                self.process = None
                shutil.rmtree(self._scratch, ignore_errors=True)
        return status

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
