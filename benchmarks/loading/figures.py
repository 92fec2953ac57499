"""What a level comes to: latency, pauses, speed, continuity, failures."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.loading.client import Arrival, Speech
from benchmarks.loading.levels import Closed, Level

# Audio that arrives closer together than this is one piece, however many writes and packets it took.
SAME_PIECE_SECONDS = 0.005
# A listener does not mind less.
STARVATION_SECONDS = 0.1


@dataclass(frozen=True)
class Spread:
    """Of a number of values. P50, P95, P99 are nearest-rank percentiles: the smallest value that so many percent of all
    are not above. So each is a value that was measured, and of less than 20 values P95 is the greatest."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None of no values."""
        if not values:
            return None
        ranked = sorted(values)
        return cls(statistics.fmean(ranked), *(percentile(ranked, percent) for percent in (50, 95, 99, 100)))


def percentile(ranked: Sequence[float], percent: int) -> float:
    """Nearest rank; `ranked` ascends and is not empty."""
    return ranked[max(0, -(-percent * len(ranked) // 100) - 1)]


@dataclass(frozen=True)
class Starvation:
    """How long a listener waits who begins with the first audio, plays in real time, and pauses where nothing is left.

    Seconds: the longest pause, and all of them together; had playing begun `total` later, there would have been none.
    """

    longest: float
    total: float

    @classmethod
    def of(cls, arrivals: Sequence[Arrival]) -> Starvation:
        """Of at least one arrival."""
        longest = total = 0.0
        dry_at = arrivals[0].at
        for arrival in arrivals:
            wait = max(0.0, arrival.at - dry_at)
            longest, total = max(longest, wait), total + wait
            dry_at += wait + arrival.audio
        return cls(longest, total)


def gaps(arrivals: Sequence[Arrival]) -> list[float]:
    """Seconds between one piece of audio and the next."""
    pauses = [later.at - earlier.at for earlier, later in itertools.pairwise(arrivals)]
    return [pause for pause in pauses if pause >= SAME_PIECE_SECONDS]


@dataclass(frozen=True)
class FailureCount:
    """`example`: the message of the first."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True)
class Figures:
    """One level. Times in seconds; spreads are over the requests that succeeded, None where there is nothing to spread.

    load                 "concurrency" (closed loop) or "rate" (requests per second, open loop), and its `value`
    refusals             answers 429 and 503, those included that were followed by another attempt
    unfinished           in flight at an interruption
    wall_s               from the beginning to the end of the last request
    ttfa_s               from when the request was due to its first audio; a WAV header is none
    gap_s                between pieces of audio, of all requests together
    rtf                  from the request to the last byte, per second of audio
    audio_s              of a request
    audio_s_per_s        audio of all requests that succeeded, per `wall_s`
    continuity_at_once   share of the streams that began whose listener never starved for longer than 100 ms
    continuity_in_total  the same, of all starvation together; a stream that broke off is in neither share
    starved_s            all starvation of a stream together
    client_lag_p99_s     by how much this client itself was late
    """

    load: str
    value: float
    requests: int
    ok: int
    failures: tuple[FailureCount, ...]
    refusals: int
    unfinished: int
    wall_s: float
    ttfa_s: Spread | None
    gap_s: Spread | None
    rtf: Spread | None
    audio_s: Spread | None
    audio_s_per_s: float
    continuity_at_once: float | None
    continuity_in_total: float | None
    starved_s: Spread | None
    rate_assumed: bool
    client_lag_p99_s: float

    @classmethod
    def of(cls, level: Level) -> Figures:
        load, speeches = level.load, level.speeches
        good = [speech for speech in speeches if speech.failure is None]
        began = sum(bool(speech.arrivals) for speech in speeches)
        starved = [Starvation.of(speech.arrivals) for speech in good]
        wall = max((speech.ended for speech in speeches), default=level.began) - level.began
        return cls(
            load="concurrency" if isinstance(load, Closed) else "rate",
            value=load.clients if isinstance(load, Closed) else load.rate,
            requests=len(speeches),
            ok=len(good),
            failures=_failures(speeches),
            refusals=sum(speech.refusals for speech in speeches),
            unfinished=level.in_flight,
            wall_s=wall,
            ttfa_s=Spread.of([speech.arrivals[0].at for speech in good]),
            gap_s=Spread.of([gap for speech in good for gap in gaps(speech.arrivals)]),
            rtf=Spread.of([speech.seconds / speech.audio for speech in good]),
            audio_s=Spread.of([speech.audio for speech in good]),
            audio_s_per_s=sum(speech.audio for speech in good) / wall if good else 0.0,
            continuity_at_once=_share([one.longest for one in starved], began),
            continuity_in_total=_share([one.total for one in starved], began),
            starved_s=Spread.of([one.total for one in starved]),
            rate_assumed=any(speech.rate_assumed for speech in good),
            client_lag_p99_s=percentile(sorted(level.lags), 99) if level.lags else 0.0,
        )


def _share(starvations: Sequence[float], began: int) -> float | None:
    return sum(seconds <= STARVATION_SECONDS for seconds in starvations) / began if began else None


def _failures(speeches: Sequence[Speech]) -> tuple[FailureCount, ...]:
    """The most frequent kind first."""
    messages: dict[str, list[str]] = {}
    for speech in speeches:
        if speech.failure is not None:
            messages.setdefault(speech.failure.kind, []).append(speech.failure.message)
    counts = [FailureCount(kind, len(found), found[0]) for kind, found in messages.items()]
    return tuple(sorted(counts, key=lambda count: -count.count))
