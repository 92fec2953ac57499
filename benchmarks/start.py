"""How long a start and a stop take: process start to ready to first audio, and SIGTERM to exit with live streams.

`python -m benchmarks.start [embedded] [full-2] [full-3]`: the embedded voice, and models of the genuine size with
random weights (2 to 3 GB, written to a temporary folder first). The service is the real one, every runner a process.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.full_size import write_model
from launch.server import Server

MODELS = ("embedded", "full-2", "full-3")
SENTENCE = "The little boat went slowly down the river in the morning. "
STREAMS = (0, 1, 4)


@dataclass(frozen=True)
class Start:
    """Seconds from the start of the process."""

    alive: float  # /livez answers
    ready: float  # /readyz answers: weights loaded, one synthesis done
    first_audio: float  # of a request sent when ready


@dataclass(frozen=True)
class Stop:
    """Seconds from SIGTERM with `streams` live ones."""

    streams: int
    last_byte: float
    exit: float
    audio: float  # seconds that were still spoken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=MODELS, default=["embedded"])
    parser.add_argument("--repeat", type=int, default=3, help="starts per model; the median counts")
    options = parser.parse_args()
    print("| model | alive | ready | first audio |\n|---|---|---|---|", flush=True)
    for name in options.models:
        with _model_dir(name) as folder:
            starts = sorted((_start(folder) for _ in range(options.repeat)), key=lambda start: start.first_audio)
        start = starts[len(starts) // 2]
        print(f"| {name} | {start.alive:.1f} s | {start.ready:.1f} s | {start.first_audio:.1f} s |", flush=True)
    print("\n| streams at SIGTERM | spoken to the end | SIGTERM to last byte | last byte to exit |\n|---|---|---|---|")
    for stop in map(_stop, STREAMS):
        rest = stop.exit - stop.last_byte
        print(f"| {stop.streams} | {stop.audio:.1f} s | {stop.last_byte:.1f} s | {rest:.2f} s |", flush=True)


@contextmanager
def _model_dir(name: str) -> Iterator[str]:
    """The MODEL_DIR of a model; "" is the embedded voice."""
    if name == "embedded":
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as scratch:
        root = Path(scratch) / name
        write_model(int(name.removeprefix("full-")), root)
        yield str(root)


def _start(folder: str) -> Start:
    began = time.monotonic()

    def since() -> float:
        return time.monotonic() - began

    with Server(env={"MODEL_DIR": folder}) as server:
        while not _answers(server, "/livez"):
            time.sleep(0.02)
        alive = since()
        server.wait_ready()
        ready = since()
        body = {"input": "Good morning.", "response_format": "pcm", "seed": 1}
        with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=600) as response:
            response.raise_for_status()
            next(response.iter_raw())
            return Start(alive, ready, since())


def _answers(server: Server, path: str) -> bool:
    assert server.process is not None
    if server.process.poll() is not None:
        raise SystemExit(f"the service stopped while starting:\n{server.tail()}")
    try:
        return httpx.get(server.url + path, timeout=0.5).status_code == 200
    except httpx.HTTPError:
        return False


def _stop(streams: int) -> Stop:
    """A drain with so many streams that have just begun."""
    with Server() as server:
        server.wait_ready()
        lengths = [0] * streams
        begun = threading.Barrier(streams + 1)

        def listen(number: int) -> None:
            body = {"input": SENTENCE * 4, "response_format": "pcm", "seed": number}
            with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=600) as response:
                for count, chunk in enumerate(response.iter_raw()):
                    if count == 0:
                        begun.wait(120)
                    lengths[number] += len(chunk)

        threads = [threading.Thread(target=listen, args=(number,)) for number in range(streams)]
        for thread in threads:
            thread.start()
        begun.wait(120)
        assert server.process is not None
        before = sum(lengths)
        began = time.monotonic()
        os.kill(server.process.pid, signal.SIGTERM)
        for thread in threads:
            thread.join(600)
        last_byte = time.monotonic() - began
        if (status := server.process.wait(120)) != 0:
            raise SystemExit(f"the service ended with {status}:\n{server.tail()}")
        return Stop(streams, last_byte, time.monotonic() - began, (sum(lengths) - before) / 2 / 24_000)


if __name__ == "__main__":
    main()
