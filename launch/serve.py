"""`make serve`: the service in the foreground, with its addresses, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

from api.oip.grpc_settings import grpc_address
from launch.server import ROOT, LaunchError, Server, address, check
from launch.terminal import ProgressLine, run


def serve(progress: ProgressLine) -> None:
    """Returns at Ctrl-C, when running streams have finished; a second Ctrl-C ends them."""
    host, port = address(3000)
    check(host, port)
    server = Server(port, host, log=_log_of(port))
    try:
        server.start()
        server.wait_ready(progress=progress.starting)
        progress.clear()
        print(_banner(server, grpc_address()), flush=True)
        assert server.process is not None
        server.process.wait()
        raise LaunchError(f"The service stopped:\n{server.tail()}")
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
        server.stop(grace=None)
    finally:
        server.stop()


def _banner(server: Server, grpc: str | None) -> str:
    places = {
        "speech": f"POST {server.url}/v1/audio/speech",
        "voices": f"GET  {server.url}/v1/audio/voices",
        "page": f"{server.url}/ui/",
        "docs": f"{server.url}/docs",
        "metrics": f"{server.url}/metrics",
        **({"grpc": grpc} if grpc else {}),
        "log": server.log,
    }
    lines = [f"{name:<8} {place}" for name, place in places.items()]
    return "\n".join([*lines, "Ctrl-C stops it when running streams have finished; a second one at once."])


def _log_of(port: int) -> Path:
    """The file of the server's log, which stays when it has ended; that of the server before it is kept beside it.

    Raises LaunchError.
    """
    log = ROOT / "out" / f"serve-{port}.log"
    try:
        log.parent.mkdir(exist_ok=True)
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        log.touch()
    except OSError as error:
        raise LaunchError(f"The log cannot be written to {log}: {error.strerror}.") from error
    return log


if __name__ == "__main__":
    sys.exit(run("serve", serve))
