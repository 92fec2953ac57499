"""Measures a running service: TTFA and rate of one stream while 1, 2, 4, ... are made at once."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from benchmarks.scaling.pods import Load, ServiceTimes

SENTENCES = (
    "The train to the coast leaves from platform nine in about twenty minutes, so there is time for a coffee.",
    "Please take a seat in the waiting room, and the doctor will call you as soon as the results are here.",
    "We walked along the river until the lights of the town came on, one after the other, on the far side.",
    "If the door does not open at once, turn the key twice to the left and push with your shoulder.",
)
BYTES_PER_SAMPLE = 2


@dataclass(frozen=True)
class Stream:
    """One streamed response. Seconds; `blocks`: audio in each block that came."""

    began: float
    ttfa: float
    ended: float
    blocks: tuple[float, ...]

    @property
    def rtf(self) -> float | None:
        """Seconds per second of audio after the first block; None when there was only one."""
        left = sum(self.blocks[1:])
        return (self.ended - self.began - self.ttfa) / left if left else None


def measure(url: str, levels: Sequence[int], rounds: int, passes: int, label: str) -> ServiceTimes:
    """Drive the service at `url` at each level until every client has made `rounds` requests, after one of warm-up; and
    all levels `passes` times, so that what else the machine does falls on all of them.

    Medians over the streams that had exactly that many beside them. Raises aiohttp.ClientError and ValueError.
    """
    by_level: dict[int, list[Stream]] = {level: [] for level in levels}
    for _ in range(passes):
        for level in levels:
            by_level[level] += asyncio.run(_level(url, level, rounds))
    loads = tuple(_load(level, streams) for level, streams in by_level.items())
    count = sum(map(len, by_level.values()))
    source = f"Measured: medians of {count} streams of {len(SENTENCES)} sentences against a running service."
    return ServiceTimes(label, source, _blocks([stream for streams in by_level.values() for stream in streams]), loads)


def _blocks(streams: Sequence[Stream]) -> tuple[float, ...]:
    """Medians of the blocks that most streams have; the last block of a stream is a remainder and says nothing."""
    full = [stream.blocks[:-1] for stream in streams]
    usual = int(statistics.median_low(len(blocks) for blocks in full))
    sizes = [[blocks[number] for blocks in full if len(blocks) > number] for number in range(usual)]
    return tuple(round(statistics.median(of_number), 3) for of_number in sizes)


def _load(level: int, streams: Sequence[Stream]) -> Load:
    rates = [stream.rtf for stream in streams if stream.rtf is not None]
    if not rates:
        raise ValueError(f"at {level} streams every response came in one block: nothing to take a rate from")
    return Load(
        level, round(statistics.median(stream.ttfa for stream in streams), 4), round(statistics.median(rates), 4)
    )


async def _level(url: str, level: int, rounds: int) -> list[Stream]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        await _speak(session, url, SENTENCES[0])
        clients = [_client(session, url, number, rounds) for number in range(level)]
        by_client = await asyncio.gather(*clients)
    # Once the first client is through, the others have less beside them.
    full_until = min(streams[-1].ended for streams in by_client)
    return [stream for streams in by_client for stream in streams if stream.ended <= full_until]


async def _client(session: aiohttp.ClientSession, url: str, number: int, rounds: int) -> list[Stream]:
    return [await _speak(session, url, SENTENCES[(number + turn) % len(SENTENCES)]) for turn in range(rounds)]


async def _speak(session: aiohttp.ClientSession, url: str, text: str) -> Stream:
    began = time.monotonic()
    first_at = 0.0
    blocks: list[int] = []
    body = {"input": text, "response_format": "pcm", "stream": True, "seed": 1}
    async with session.post(f"{url}/v1/audio/speech", json=body) as response:
        if response.status != 200:
            raise ValueError(f"{url} answered {response.status}: {(await response.text())[:200]}")
        bytes_per_second = int(response.headers["X-Sample-Rate"]) * BYTES_PER_SAMPLE
        block = 0
        async for data, block_ends in response.content.iter_chunks():
            block += len(data)
            if block_ends and block:
                first_at = first_at or time.monotonic()
                blocks.append(block)
                block = 0
    if not blocks:
        raise ValueError(f"{url} answered without any audio")
    seconds = tuple(size / bytes_per_second for size in blocks)
    return Stream(began, first_at - began, time.monotonic(), seconds)
