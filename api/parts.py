"""The parts of a speech, each one request of the engine, spoken one after the other as one row of audio blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from api.backend import Backend
from api.deadlines import done_within
from api.errors import ApiError
from api.limits import tenant
from api.tracing import followed
from audio.shape import Shaper
from runners.frames import FrameKind
from runners.request import ModelInfo, SpeechRequest
from text.frontend import Segment

if TYPE_CHECKING:
    from api.dictation import Arriving

Item = TypeVar("Item")
# Of the engine, read before they are wanted, so that the next part is under way while the last one is heard.
_FRAMES_AHEAD = 8
_SILENCE_SECONDS = 1.0  # of one block


@dataclass(frozen=True)
class Part:
    """Speech of one voice, speed, volume and pitch, then a pause. `request` None: only the pause.

    `segments` are those of the request, or `arriving` is its text. `volume` is a gain, `pitch` a ratio.
    """

    request: SpeechRequest | None
    segments: tuple[Segment, ...] = ()
    volume: float = 1.0
    pitch: float = 1.0
    pause_s: float = 0.0
    arriving: Arriving | None = None


@dataclass(frozen=True)
class SegmentTime:
    """When the `index`-th segment, `text` as it was read, is heard: seconds from the first sample."""

    index: int
    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Summary:
    """How a speech ended well. `finish_reason`: "stop", or "length" where a limit of tokens cut a segment."""

    text_tokens: int
    speech_tokens: int
    finish_reason: str
    segments: tuple[SegmentTime, ...]


@dataclass
class Tally:
    """What is known of a speech so far."""

    seconds: float = 0.0
    text_tokens: int = 0
    speech_tokens: int = 0
    truncated: bool = False
    segments: list[SegmentTime] = field(default_factory=list)

    def add_segment(self, segment: Segment | None, end_s: float) -> None:
        """What ends `end_s` after the first sample, and begins where the last sound or pause ended: None, if it is
        speech without a text."""
        if segment is not None:
            self.segments.append(SegmentTime(len(self.segments), segment.text, self.seconds, end_s))
        self.seconds = end_s

    def add_end(self, end: dict[str, Any]) -> None:
        """The fields of a part's END frame."""
        self.text_tokens += end["text_tokens"]
        self.speech_tokens += end["speech_tokens"]
        self.truncated |= end["finish_reason"] == "length"

    def summary(self) -> Summary:
        reason = "length" if self.truncated else "stop"
        return Summary(self.text_tokens, self.speech_tokens, reason, tuple(self.segments))


class Performance:
    """The playing of parts. `blocks` once, then `tally` has all of them."""

    def __init__(
        self, backend: Backend, parts: Sequence[Part], info: ModelInfo, sample_rate: int, *, continues: bool = False
    ) -> None:
        self._backend, self._parts, self._continues = backend, parts, continues
        self._rate, self._sample_rate = info.sample_rate, sample_rate
        self.tally = Tally()

    async def blocks(self, deadline: float | None) -> AsyncGenerator[np.ndarray, None]:
        """`[L]` float32 blocks at the sample rate wanted; empty ones are left out. `deadline`: monotonic seconds.

        Raises RequestError, and ApiError deadline_exceeded.
        """
        async with aclosing(_read_ahead(self._shaped(), _FRAMES_AHEAD)) as blocks:
            while (block := await _before(deadline, blocks)) is not None:
                yield block

    async def _shaped(self) -> AsyncGenerator[np.ndarray, None]:
        fade_in = True
        for part in self._parts:
            if part.request is not None:
                request = replace(part.request, tenant=tenant(), continues=self._continues)
                async with aclosing(self._spoken(part, request, fade_in)) as blocks:
                    async for block in blocks:
                        if len(block):
                            yield block
                fade_in, self._continues = False, True
            for seconds in _pieces(part.pause_s):
                yield np.zeros(round(seconds * self._sample_rate), np.float32)
            self.tally.seconds += part.pause_s

    async def _spoken(self, part: Part, request: SpeechRequest, fade_in: bool) -> AsyncGenerator[np.ndarray, None]:
        shaper = Shaper(self._rate, self._sample_rate, volume=part.volume, pitch=part.pitch, fade_in=fade_in)
        takes_time = part.pitch != 1 or self._sample_rate != self._rate
        begin, segments, arriving = self.tally.seconds, iter(part.segments), part.arriving
        texts = None if arriving is None else arriving.texts()
        async with aclosing(followed(self._backend, request, texts)) as frames:
            async for frame in frames:
                if frame.kind is FrameKind.SEGMENT:
                    segment = next(segments, None) if arriving is None else arriving.segment()
                    self.tally.add_segment(segment, begin + frame.json()["end"] / self._rate)
                    continue
                if frame.kind is FrameKind.END:
                    self.tally.add_end(frame.json())
                    continue
                samples = np.frombuffer(frame.payload, np.float32)
                # In a thread, as the loop feeds every stream.
                yield await asyncio.to_thread(shaper.feed, samples) if takes_time else shaper.feed(samples)
        yield shaper.end()


def _pieces(seconds: float) -> list[float]:
    whole, rest = divmod(seconds, _SILENCE_SECONDS)
    return [*[_SILENCE_SECONDS] * int(whole), *([rest] if rest else [])]


async def _before(deadline: float | None, items: AsyncGenerator[Item, None]) -> Item | None:
    """The next of `items`, None after the last. Raises ApiError deadline_exceeded when `deadline` comes first."""
    if deadline is None:
        return await anext(items, None)
    try:
        return await done_within(max(0.0, deadline - time.monotonic()), anext(items, None))
    except asyncio.TimeoutError:
        raise deadline_exceeded() from None


def deadline_exceeded() -> ApiError:
    return ApiError(504, "deadline_exceeded", "The speech was not done within timeout_s.", "timeout_s")


async def _read_ahead(items: AsyncGenerator[Item, None], count: int) -> AsyncGenerator[Item, None]:
    """`items`, up to `count` of them taken before they are wanted. Closing it closes them."""
    queue: asyncio.Queue[tuple[Item | None, Exception | None]] = asyncio.Queue(count)

    async def read() -> None:
        error = None
        try:
            async with aclosing(items):
                async for item in items:
                    await queue.put((item, None))
        except Exception as problem:
            error = problem
        await queue.put((None, error))

    reader = asyncio.create_task(read())
    try:
        while True:
            item, error = await queue.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
