"""First audio of text that is still being written: what each policy of the WebSocket route waits for.

`python -m benchmarks.live_text --url ws://localhost:3000`, of a server whose model speaks while its text arrives.
Sessions write the same sentences word by word at a given rate, the policies in turn, so that whatever else the machine
does meets them alike. Measured is from the first word written to the first byte of audio, and how many words had been
written by then; the ratio is that of the medians in this run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect

PATH = "/v1/audio/speech/stream"
POLICIES = ("sentence", "clause", "model")
RATES = (15.0, 4.0)  # words per second: a language model's, a person's who talks
SENTENCES = (
    "The museum opens at nine in the morning and closes late in the evening on most days of the week.",
    "You can take the train from the central station, which leaves every hour and takes about two hours.",
    "If the weather stays like this, we could walk along the river and have lunch somewhere near the old bridge.",
    "I have looked at your order and it seems that the second parcel was sent to your old address by mistake.",
)


@dataclass(frozen=True)
class First:
    """Of one sentence: seconds from its first word to its first audio, and the words written by then."""

    seconds: float
    words: int


async def first_audio(url: str, voice: dict[str, str], policy: str, sentence: str, rate: float, seed: int) -> First:
    async with connect(url + PATH, compression=None) as socket:
        await _say(socket, "session.config", policy=policy, format="pcm", seed=seed, **voice)
        await _until(socket, "session.updated")
        words = [f"{word} " for word in sentence.split()]
        began = time.monotonic()
        written = 0

        async def write() -> None:
            nonlocal written
            for index, word in enumerate(words):
                await asyncio.sleep(max(0.0, began + index / rate - time.monotonic()))
                await _say(socket, "input.text", text=word)
                written = index + 1
            await _say(socket, "input.flush")

        writing = asyncio.create_task(write())
        try:
            while not isinstance(message := await socket.recv(), bytes):
                if (event := json.loads(message))["type"] == "error":
                    raise SystemExit(f"the server says {event['code']}: {event['message']}")
            return First(time.monotonic() - began, written)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _say(socket: ClientConnection, kind: str, **fields: object) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


async def _until(socket: ClientConnection, kind: str) -> None:
    while (event := json.loads(await socket.recv()))["type"] != kind:
        if event["type"] == "error":
            raise SystemExit(f"the server says {event['code']}: {event['message']}")


async def measure(url: str, voice: dict[str, str], rate: float, repeats: int) -> dict[str, list[First]]:
    found: dict[str, list[First]] = {policy: [] for policy in POLICIES}
    for repeat in range(repeats):
        for sentence in SENTENCES:
            for policy in POLICIES:
                found[policy].append(await first_audio(url, voice, policy, sentence, rate, repeat))
    return found


def markdown(rate: float, found: dict[str, list[First]]) -> str:
    seconds = {policy: statistics.median(one.seconds for one in firsts) for policy, firsts in found.items()}
    words = {policy: statistics.median(one.words for one in firsts) for policy, firsts in found.items()}
    cells = [f"{seconds[policy]:.2f} s, {words[policy]:g} words" for policy in POLICIES]
    ratios = [f"{seconds['model'] / seconds[policy]:.2f}x" for policy in POLICIES[:-1]]
    return " | ".join([f"| {rate:g} words/s", *cells, *ratios]) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="ws://localhost:3000")
    parser.add_argument("--voice", default="")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    print("| first audio | sentence | clause | model | to sentence | to clause |\n|---|---|---|---|---|---|")
    for rate in RATES:
        voice = {"voice": given.voice} if given.voice else {}
        print(markdown(rate, asyncio.run(measure(given.url, voice, rate, given.repeats))), flush=True)


if __name__ == "__main__":
    main()
