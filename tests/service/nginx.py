"""The nginx.conf of deploy/compose in front of services on loopback: nothing of it is another but where things are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from launch.server import ROOT, free_port

CONF = ROOT / "deploy" / "compose" / "nginx.conf"
needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed (apt: nginx-light)")


def rendered(listening: dict[int, int], servers: dict[str, int], folder: Path) -> str:
    """`listening`: the ports instead of 8080 and 8081; `servers`: those on loopback instead of NAME:PORT."""
    conf = CONF.read_text()
    for port, other in listening.items():
        conf, count = re.subn(rf"\blisten {port}\b", f"listen 127.0.0.1:{other}", conf)
        assert count == 1
    for name, other in servers.items():
        conf, count = re.subn(rf"\bserver {re.escape(name)}\b", f"server 127.0.0.1:{other}", conf)
        assert count == 1
    return conf.replace("/tmp/", f"{folder}/")


class Nginx:
    """A context manager: running, with its log, until the block ends."""

    def __init__(self, servers: dict[str, int], folder: Path) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        self.url, self.grpc_address = f"http://127.0.0.1:{self.port}", f"127.0.0.1:{self.grpc_port}"
        self._folder, self._log = folder, folder / "nginx.log"
        self._conf = folder / "nginx.conf"
        self._conf.write_text(rendered({8080: self.port, 8081: self.grpc_port}, servers, folder))

    def __enter__(self) -> Nginx:
        # Its workers are to reach the folder of a test, which is its owner's alone.
        user = " user root;" if os.geteuid() == 0 else ""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["nginx", "-c", str(self._conf), "-g", f"daemon off;{user}"], stdout=log, stderr=log
            )
        for _ in range(200):
            try:
                httpx.get(f"{self.url}/metrics")
                return self
            except httpx.TransportError:
                assert self._process.poll() is None, self.log()
                time.sleep(0.02)
        raise AssertionError(self.log())

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def log(self) -> str:
        return self._log.read_text()

    def requests(self) -> dict[str, dict[str, Any]]:
        """The lines of the requests that have ended, by id."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return {line["id"]: line for line in lines}
