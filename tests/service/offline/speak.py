"""Run by test_offline.py in a network of its own: start the service, ask it for speech, write the wav.

speak.py REQUEST WAV: REQUEST is a file with the JSON of a speech request.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from pathlib import Path

import httpx

from launch.server import Server

SIOCSIFFLAGS, UP_AND_RUNNING = 0x8914, 0x41


def switch_loopback_on() -> None:
    """It is off in a new network namespace; where it is on already, and may not be switched, nothing happens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", UP_AND_RUNNING))


def main(request: Path, wav: Path) -> None:
    with Server() as server:
        server.wait_ready(timeout=240)
        answer = httpx.post(f"{server.url}/v1/audio/speech", content=request.read_bytes(), timeout=240, trust_env=False)
        print(answer.status_code, answer.text[:500] if answer.status_code != 200 else "")
        answer.raise_for_status()
        wav.write_bytes(answer.content)
        assert server.stop() == 0


if __name__ == "__main__":
    if "--own-network" in sys.argv:
        switch_loopback_on()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
