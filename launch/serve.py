"""`make serve`: the service in the foreground, with its addresses, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import time

from launch.progress import ProgressLine
from launch.server import LaunchError, Server, check


def main() -> int:
    host = os.environ.get("HOST") or "127.0.0.1"
    port = int(os.environ.get("PORT") or 3000)
    progress = ProgressLine()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        check(host, port)
        with Server(port, host) as server:
            server.wait_ready(progress=lambda elapsed: progress.show("starting the service", f"{elapsed:.0f} s"))
            progress.clear()
            print(
                f"speech   POST {server.url}/v1/audio/speech\n"
                f"voices   GET  {server.url}/v1/audio/voices\n"
                f"docs     {server.url}/\n"
                f"metrics  {server.url}/metrics\n"
                f"log      {server.log}\n"
                "Ctrl-C stops it; running streams finish.",
                flush=True,
            )
            while server.process is not None and server.process.poll() is None:
                time.sleep(0.5)
            raise LaunchError(f"The service stopped:\n{server.tail()}")
    except LaunchError as error:
        progress.clear()
        print(f"serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress.clear()
        print("stopping", file=sys.stderr)
        return 0


if __name__ == "__main__":
    sys.exit(main())
