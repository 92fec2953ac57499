"""`make serve`: the service in the foreground, with its addresses, until Ctrl-C."""

from __future__ import annotations

import sys

from launch.server import LaunchError, Server, address, check
from launch.terminal import ProgressLine, run


def serve(progress: ProgressLine) -> None:
    """Returns at Ctrl-C, when running streams have finished; a second Ctrl-C ends them."""
    host, port = address(3000)
    check(host, port)
    server = Server(port, host)
    try:
        server.start()
        server.wait_ready(progress=progress.starting)
        progress.clear()
        print(
            f"speech   POST {server.url}/v1/audio/speech\n"
            f"voices   GET  {server.url}/v1/audio/voices\n"
            f"page     {server.url}/ui/\n"
            f"docs     {server.url}/docs\n"
            f"metrics  {server.url}/metrics\n"
            f"log      {server.log}\n"
            "Ctrl-C stops it when running streams have finished; a second one at once.",
            flush=True,
        )
        assert server.process is not None
        server.process.wait()
        raise LaunchError(f"The service stopped:\n{server.tail()}")
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
        server.stop(grace=None)
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(run("serve", serve))
