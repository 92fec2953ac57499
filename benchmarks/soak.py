"""Does the service stay as it is? `python -m benchmarks.soak`, `make soak`: the exit status says.

The real service on the embedded voice, in processes of its own, is asked for everything that it can do, one after the
other; then clients ask for all of it at random, at once, and leave at any moment, in order or by a TCP reset, send
errors and rubbish, read slowly, and save, replace, rename and delete voices. After each round the service comes to
rest. Passed: what the processes hold at rest is flat, all gauges of load are zero, no process was replaced, nothing
failed, and every answer is the one that the same request got alone. soak.json, soak.md and soak.png go to out/soak.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.measure.machine import Machine
from benchmarks.soaking import chart
from benchmarks.soaking.mix import Mix
from benchmarks.soaking.processes import MIB, Processes, Sample
from benchmarks.soaking.report import Report
from benchmarks.soaking.requests import Ways
from benchmarks.soaking.verdict import FLAT, IDLE, IDLE_SECONDS, Rest, lines, never_at_rest
from launch.server import Server, free_port
from launch.terminal import ProgressLine, run
from runners.settings import available_cores

MEMORY_MB = 400
"""For the engine, so that what it keeps of voices is full, and gives place, before the warm-up is over."""
ROUNDS, LONGEST_ROUND = 12, 30.0
SAMPLE_SECONDS = 1.0
SAME = 2e-3
"""Of full scale: products of another size round differently. Another request's sound is off by a hundred times that."""
SAME_CODED = 2e-2
"""After a lossy coder, which may choose otherwise."""
ENTRY_MIB = 10.0
"""What is kept of the longest recording here: by so much a full cache is now more, now less."""
SETTLING_SECONDS = 0.5
"""Until the service has closed the connections that its clients have."""
_CACHE = " cache"
LOSSY = ("mp3", "opus", "aac")
SERVERS_FAULTS = ("internal_error", "engine_error", "engine_unavailable", "nonfinite_audio", "voice_damaged")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of load, at least (default 20)")
    parser.add_argument("--requests", type=int, default=0, help="at least so many, in up to twice the time")
    parser.add_argument("--clients", type=int, default=8, help="at once (default 8)")
    parser.add_argument("--seed", type=int, default=0, help="of what is asked when (default 0)")
    parser.add_argument("--flat", type=float, default=FLAT, help="greatest growth; default %(default)s, which is 2 %%")
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)

    def command(_: ProgressLine) -> None:
        seconds = options.minutes * 60
        try:
            report = asyncio.run(
                soak(seconds, options.requests, options.clients, options.seed, options.flat, options.out)
            )
        except asyncio.CancelledError as stopped:
            raise KeyboardInterrupt from stopped
        print(report.markdown(), end="")
        if not report.passed:
            count, first = len(report.faults), report.faults[0]
            print(f"soak: failed with {count} faults, the first: {first}. All are in {options.out}.", file=sys.stderr)
            raise SystemExit(1)

    raise SystemExit(run("soak", command))


async def soak(seconds: float, requests: int, clients: int, seed: int, flat: float, out: Path) -> Report:
    """`seconds`, `requests`: at least; `flat`: the greatest growth. SIGTERM cancels it, and the service is stopped."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    grpc_port = free_port()
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as voices:
        environment = {
            "COSYSERVE_VOICES": voices,
            "COSYSERVE_UPSTREAM_ROUTES": "1",
            "COSYSERVE_MEMORY_MB": str(MEMORY_MB),
            "COSYSERVE_MAX_TTFA": "none",  # all are to be answered
            "GRPC_PORT": str(grpc_port),
            "MODEL_DIR": "",
        }
        with Server(env=environment, log=out / "server.log") as server:
            await asyncio.to_thread(server.wait_ready)
            ran = _Soak(server, f"127.0.0.1:{grpc_port}", Mix(seed, _tolerance), clients)
            await ran.through(seconds, requests)
            settings = {"clients": clients, "seed": seed, "rounds": len(ran.rests)}
            report = ran.report(settings, flat)
    for number, (name, files) in enumerate(ran.different):
        for kind, file in files.items():
            (out / f"different-{number}-{name.replace(' ', '-')}-{kind}").write_bytes(file)
    report.write(out / "soak.json")
    (out / "soak.md").write_text(report.markdown(), "utf-8")
    if ran.rests and not chart.draw(ran.samples, ran.rests, ran.began, out / "soak.png"):
        _tell("no chart without matplotlib")
    return report


def _tolerance(audio_format: str) -> float:
    return SAME_CODED if audio_format in LOSSY else SAME


class _Soak:
    """One run on a server that is ready."""

    def __init__(self, server: Server, grpc_address: str, mix: Mix, clients: int) -> None:
        self._server, self._grpc_address, self._mix, self._clients = server, grpc_address, mix, clients
        self._processes = Processes(server)
        self.samples: list[Sample] = []
        self.rests: list[Rest] = []
        self.outcomes: dict[str, float] = {}
        self.faults: list[str] = []
        self.began = 0.0

    async def through(self, seconds: float, requests: int) -> None:
        try:
            async with self._ways() as ways:
                _tell("each request alone")
                await self._mix.alone(ways)
                _tell("recordings until the oldest are forgotten")
                await self._mix.fill_caches(ways)
        except Exception as error:  # whatever it is, it is the service's, and there is nothing to compare with
            self.faults.append(f"before the load: {type(error).__name__}: {error}")
            return
        length = min(LONGEST_ROUND, seconds / ROUNDS)
        self.began = time.monotonic()
        sampling = asyncio.create_task(self._sample())
        try:
            while self._goes_on(seconds, requests):
                async with self._ways() as ways:
                    await self._mix.round(ways, self._clients, len(self.rests), length)
                self.rests.append(await self._at_rest())
                _tell(self._said())
            if self._mix.tally.requests < requests:
                self.faults.append(f"only {self._mix.tally.requests:,} of {requests:,} requests in twice the time")
            self.outcomes = await asyncio.to_thread(_outcomes, self._server.url)
        except (psutil.NoSuchProcess, OSError) as error:
            self.faults.append(f"a process of the service ended: {error}")
        finally:
            sampling.cancel()

    def report(self, settings: Mapping[str, object], flat: float) -> Report:
        tally = self._mix.tally
        steps = {name: _step(name) for name in (self.rests[0].values if self.rests else ())}
        found = lines(self.rests, steps, flat)
        self.faults += tally.faults + never_at_rest(self.rests)
        self.faults += [f"{line.name} grew from {line.first:.1f} to {line.last:.1f}" for line in found if not line.flat]
        self.faults += [
            f"{outcome}: {count:.0f} requests" for outcome, count in self.outcomes.items() if outcome in SERVERS_FAULTS
        ]
        if (tracebacks := self._server.log.read_text(errors="replace").count("Traceback (most")) > 0:
            self.faults.append(f"{tracebacks} tracebacks in {self._server.log}")
        return Report(
            Machine.of(available_cores()),
            settings,
            flat,
            self.rests[-1].at if self.rests else 0.0,
            dict(tally.asked),
            tally.differences,
            self.outcomes,
            found,
            self.rests,
            self.samples,
            self.faults,
        )

    @property
    def different(self) -> Sequence[tuple[str, Mapping[str, bytes]]]:
        """What was answered that should have been something else, and that."""
        return self._mix.tally.different

    def _goes_on(self, seconds: float, requests: int) -> bool:
        elapsed = time.monotonic() - self.began
        return elapsed < seconds or (self._mix.tally.requests < requests and elapsed < 2 * seconds)

    def _ways(self) -> Ways:
        return Ways(self._server.url, self._grpc_address)

    async def _sample(self) -> None:
        with suppress(psutil.NoSuchProcess):  # the rest after the round will tell
            while True:
                self.samples.append(self._processes.sample())
                await asyncio.sleep(SAMPLE_SECONDS)

    async def _at_rest(self) -> Rest:
        ended = time.monotonic()
        idle_after = None
        while True:
            waited = time.monotonic() - ended
            gauges = await asyncio.to_thread(_gauges, self._server.url)
            if not any(gauges[name] for name in IDLE):
                idle_after = waited
                break
            if waited > IDLE_SECONDS:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLING_SECONDS)
        sample = self._processes.sample()
        held = {f"{process} {name}": value for process in sample.held for name, value in _values(sample, process)}
        held |= {name: value for name, value in gauges.items() if name.endswith(_CACHE)}
        return Rest(ended - self.began, self._mix.tally.requests, idle_after, held)

    def _said(self) -> str:
        rest = self.rests[-1]
        memory = ", ".join(f"{name} {value:.0f}" for name, value in rest.values.items() if name.endswith("rss"))
        faults = self._mix.tally.faults
        latest = f", the latest: {faults[-1]}" if faults else ""
        return f"{rest.at:.0f} s, {rest.requests} requests; MiB: {memory}; {len(faults)} faults{latest}"


def _step(name: str) -> float:
    """What a value may grow by anyhow: a pool may get one more thread late, a second one is a trend."""
    if name.endswith(("threads", "fds")):
        return 2.0
    return ENTRY_MIB if name.endswith(_CACHE) else 0.0


def _values(sample: Sample, process: str) -> list[tuple[str, float]]:
    return list(asdict(sample.held[process]).items())


def _families(url: str) -> list:
    with urllib.request.urlopen(url + "/metrics", timeout=60) as response:
        return list(text_string_to_metric_families(response.read().decode()))


def _gauges(url: str) -> dict[str, float]:
    """Of the service, each summed over its labels; those of IDLE are there, whether they were ever set or not. Caches
    are there by themselves too, in MiB."""
    found = dict.fromkeys(IDLE, 0.0)
    for family in _families(url):
        if family.type == "gauge" and family.name.startswith("cosyserve_"):
            found[family.name] = sum(sample.value for sample in family.samples)
            for sample in family.samples:
                if "cache" in sample.labels:
                    found[sample.labels["cache"] + _CACHE] = sample.value / MIB
    return found


def _outcomes(url: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in _families(url):
        if family.name == "cosyserve_requests":
            for sample in family.samples:
                outcome = sample.labels["outcome"]
                found[outcome] = found.get(outcome, 0) + sample.value
    return found


def _tell(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
