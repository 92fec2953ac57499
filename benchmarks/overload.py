"""What becomes of a service that is asked for four times what it can do, and of one tenant while another floods it.

    python -m benchmarks.overload --json overload.json

Starts the service on MODEL_DIR (else the embedded voice) with two API keys. In one run: the service alone, its peak (of
some numbers of clients at once the best), an open load of four times as many requests per second as it answered there,
the seconds after it, the peak's clients once more, and one request of a key in the middle of fifty of another.

Goodput, of the peak as under overload, is the audio, per second, of requests that began to be heard within the bound
and whose listener never waited for more than a tenth of a second. The peak is the mean of its two measurements, before
and after the overload: the best of some alone would be one of good luck, and a machine may be at other work meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from api.keyring import KEYS, entry, new_key
from benchmarks.loading.client import Speech, Target, speak
from benchmarks.loading.figures import STARVATION_SECONDS, Starvation, percentile
from benchmarks.loading.levels import Closed, Extent, Level, Load, Open, Plan, run
from benchmarks.loading.texts import TEXTS
from launch.server import Server

CLIENTS = (4, 6, 8)
OVERLOAD = 4
RAMP_SECONDS = 3.0  # of each level, in which it fills
PROBE_TEXT = "Good morning."
PROBE_EVERY_SECONDS = 1.0  # less often than a probe lasts to be heard: they are one listener, not a load
WATCHED_SECONDS = 12.0
NORMAL = 1.5  # times the TTFA alone
IN_A_ROW = 3  # normal answers after which a service counts as recovered
FLOOD = 50
FLOODS = 3


@dataclass(frozen=True)
class Report:
    """Seconds, and seconds of audio per second. Beside each claim the figures that it is made of.

    peak_goodput       the mean of `peak_goodputs`, before and after the overload
    goodput_ratio      goodput under overload over the peak
    ttfa_ratio         TTFA P95 of what was admitted over the bound
    recovery_s         from the end of the load until answers, to the key that it came from, begin as fast as alone;
                       None: not while it was watched
    fairness_ratio     TTFA of one key's request in the flood of another over its TTFA alone
    """

    bound_s: float
    alone_ttfa_p50_s: float
    peak_clients: int
    peak_goodputs: tuple[float, float]
    peak_goodput: float
    peak_requests_per_s: float
    overload_requests_per_s: float
    overload_goodput: float
    goodput_ratio: float
    admitted: int
    admitted_ttfa_p95_s: float
    ttfa_ratio: float
    refused: int
    refusal_p95_s: float
    failed_otherwise: int
    recovery_s: float | None
    flood_ttfa_p50_s: float
    fairness_ratio: float

    def table(self) -> str:
        recovery = "longer than it was watched" if self.recovery_s is None else f"{self.recovery_s:.1f} s"
        rows = [
            (
                "goodput at 4x / peak",
                f"{self.goodput_ratio:.2f}",
                f"{self.overload_goodput:.2f} / {self.peak_goodput:.2f}",
            ),
            (
                "TTFA P95 of the admitted / bound",
                f"{self.ttfa_ratio:.2f}",
                f"{self.admitted_ttfa_p95_s:.2f} / {self.bound_s:g} s",
            ),
            (
                "refusals, P95",
                f"{1000 * self.refusal_p95_s:.0f} ms",
                f"{self.refused} of {self.refused + self.admitted}",
            ),
            ("normal again after", recovery, f"TTFA alone {self.alone_ttfa_p50_s:.2f} s"),
            ("TTFA in another key's flood / alone", f"{self.fairness_ratio:.2f}", f"{self.flood_ttfa_p50_s:.2f} s"),
        ]
        lines = [f"| {claim} | {value} | {of} |" for claim, value, of in rows]
        return "\n".join(["| claim | | of |", "|---|---:|---|", *lines])


def goodput(level: Level, seconds: float, bound: float) -> float:
    """Audio per second, between the ramp and the end of the load, of requests that were good for their listener."""
    begin, end = level.began + RAMP_SECONDS, level.began + seconds
    good = [one for one in level.speeches if one.failure is None and _good(one, bound)]
    heard = sum(arrival.audio for one in good for arrival in one.arrivals if begin <= one.asked + arrival.at < end)
    return heard / (end - begin)


def _good(speech: Speech, bound: float) -> bool:
    return speech.arrivals[0].at <= bound and Starvation.of(speech.arrivals).longest <= STARVATION_SECONDS


def recovered_after(probes: Sequence[Speech], ended: float, normal: float) -> float | None:
    """Seconds from `ended` to the first of some probes in a row that were answered as fast as `normal`."""
    fine = [one.failure is None and one.arrivals[0].at <= normal for one in probes]
    for index in range(len(probes) - IN_A_ROW + 1):
        if all(fine[index : index + IN_A_ROW]):
            return probes[index].asked - ended
    return None


class _Bench:
    def __init__(self, url: str, keys: tuple[str, str], seconds: float, bound: float) -> None:
        endpoint = url + "/v1/audio/speech"
        self._target, self._other = Target(endpoint, api_key=keys[0]), Target(endpoint, api_key=keys[1], retry=True)
        self._seconds, self._bound = seconds, bound

    async def report(self) -> Report:
        (alone,) = await self._levels([Closed(1)], Extent(requests=6), [PROBE_TEXT])
        normal = statistics.median(_ttfas(alone))
        extent = Extent(seconds=self._seconds)
        levels = await self._levels([Closed(clients) for clients in CLIENTS], extent, TEXTS)
        peak = max(levels, key=self._goodput)
        answered = sum(one.failure is None for one in peak.speeches)
        rate = answered / (max(one.ended for one in peak.speeches) - peak.began)
        probing = asyncio.create_task(self._probe())
        (flooded,) = await self._levels([Open(OVERLOAD * rate)], extent, TEXTS)
        probes, ended = await probing
        (again,) = await self._levels([peak.load], extent, TEXTS)
        peaks = self._goodput(peak), self._goodput(again)
        peak_goodput = statistics.fmean(peaks)
        in_flood = [await self._one_in_a_flood() for _ in range(FLOODS)]
        admitted = sorted(_ttfas(flooded))
        refused = [one for one in flooded.speeches if one.refusals]
        flood_ttfa = statistics.median(in_flood)
        assert isinstance(peak.load, Closed)
        return Report(
            bound_s=self._bound,
            alone_ttfa_p50_s=normal,
            peak_clients=peak.load.clients,
            peak_goodputs=peaks,
            peak_goodput=peak_goodput,
            peak_requests_per_s=rate,
            overload_requests_per_s=OVERLOAD * rate,
            overload_goodput=self._goodput(flooded),
            goodput_ratio=self._goodput(flooded) / peak_goodput,
            admitted=len(admitted),
            admitted_ttfa_p95_s=percentile(admitted, 95),
            ttfa_ratio=percentile(admitted, 95) / self._bound,
            refused=len(refused),
            refusal_p95_s=percentile(sorted(one.seconds for one in refused), 95) if refused else 0.0,
            failed_otherwise=len(flooded.speeches) - len(admitted) - len(refused),
            recovery_s=recovered_after(probes, ended, NORMAL * normal),
            flood_ttfa_p50_s=flood_ttfa,
            fairness_ratio=flood_ttfa / normal,
        )

    def _goodput(self, level: Level) -> float:
        return goodput(level, self._seconds, self._bound)

    async def _levels(self, loads: Sequence[Load], extent: Extent, texts: Sequence[str]) -> list[Level]:
        levels: list[Level] = []
        await run(Plan(self._target, texts, loads, extent), levels, _tell)
        return levels

    async def _probe(self) -> tuple[list[Speech], float]:
        """Short requests one after the other from the end of the load on, which begins now; and when it ended. A
        refusal is no normal answer, and nobody waits for its Retry-After."""
        ended = time.monotonic() + self._seconds
        probes: list[Speech] = []
        async with self._target.session() as session:
            due = ended
            while due < ended + WATCHED_SECONDS:
                await asyncio.sleep(due - time.monotonic())
                probes.append(await speak(session, self._target, PROBE_TEXT))
                due = max(due + PROBE_EVERY_SECONDS, time.monotonic())
        return probes, ended

    async def _one_in_a_flood(self) -> float:
        """The TTFA of a key's only request, which comes a second after many of another key."""
        async with self._target.session() as flooding, self._other.session() as session:
            flood = [
                asyncio.create_task(speak(flooding, self._target, TEXTS[number % len(TEXTS)]))
                for number in range(FLOOD)
            ]
            await asyncio.sleep(1.0)
            spoken = await speak(session, self._other, PROBE_TEXT)
            await asyncio.gather(*flood)
        if spoken.failure is not None:
            raise RuntimeError(f"the other key was not served: {spoken.failure.message}")
        return spoken.arrivals[0].at


def _ttfas(level: Level) -> list[float]:
    return [one.arrivals[0].at for one in level.speeches if one.failure is None]


def _tell(level: Level, ended: bool) -> None:
    if ended:
        print(level, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "overload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=12.0, metavar="S", help="of each level (default 12)")
    parser.add_argument("--max-ttfa", type=float, default=3.0, metavar="S", help="the bound (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    options = parser.parse_args(arguments)
    if options.seconds <= RAMP_SECONDS:
        parser.error(f"--seconds must be over {RAMP_SECONDS:g}")
    keys = new_key(), new_key()
    env = {KEYS: ";".join(map(entry, ("one", "other"), keys)), "COSYSERVE_MAX_TTFA": str(options.max_ttfa)}
    with Server(env=env) as server:
        server.wait_ready()
        report = asyncio.run(_Bench(server.url, keys, options.seconds, options.max_ttfa).report())
    print(report.table(), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(report), indent=2) + "\n")


if __name__ == "__main__":
    main()
