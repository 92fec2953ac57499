"""From what a client wants spoken to its samples: the same whatever protocol asked."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from api.backend import Backend
from api.casting import Casting
from api.errors import ApiError
from api.limits import spend_characters
from api.parts import Part, Performance, SegmentTime, Summary, deadline_exceeded
from api.passages import Passage, parts_of, read_passages
from api.references import ReferenceVoices
from api.telemetry import Recording
from api.wish import SpeechWish, check_wish
from runners.request import ModelInfo
from text.frontend import Segment

if TYPE_CHECKING:
    from api.dictionaries import DictionaryStore
    from runners.voice_store import VoiceStore

__all__ = ["SegmentTime", "Speaker", "Speech", "SpeechWish", "Summary", "prepare"]

Item = TypeVar("Item")


@dataclass(frozen=True)
class Speaker:
    """What every protocol needs to speak. `voices` None: nothing is saved here; `dictionaries` alike."""

    backend: Backend
    references: ReferenceVoices
    voices: VoiceStore | None = None
    dictionaries: DictionaryStore | None = None


class Speech:
    """A prepared wish. `blocks` once; `summary` when they have ended.

    `segments`: as they will be spoken. `seconds`: what its preparation took, by stage.
    """

    def __init__(
        self, backend: Backend, parts: Sequence[Part], wish: SpeechWish, info: ModelInfo, *, seed: int, began: float
    ) -> None:
        self.info, self.wish, self.seed = info, wish, seed
        self.sample_rate = wish.sample_rate or info.sample_rate
        self.segments: tuple[Segment, ...] = tuple(segment for part in parts for segment in part.segments)
        self.seconds: dict[str, float] = {}
        self._deadline = None if wish.timeout_s is None else began + wish.timeout_s
        self._performance = Performance(backend, parts, info, self.sample_rate)
        self._ended = False

    @property
    def spoken(self) -> Sequence[SegmentTime]:
        """The segments whose audio has been made so far."""
        return self._performance.tally.segments

    @property
    def summary(self) -> Summary:
        assert self._ended, "there is a summary once the blocks have ended"
        return self._performance.tally.summary()

    async def blocks(self, recording: Recording) -> AsyncGenerator[np.ndarray, None]:
        """`[L]` float32 blocks at `sample_rate`: volume, pitch, rate, fade-in and pauses applied. Closing it cancels
        the engine's request. Raises RequestError, AudioError, and ApiError deadline_exceeded."""
        recording.started(self.sample_rate)
        async with aclosing(self._performance.blocks(self._deadline)) as blocks:
            async for block in blocks:
                recording.audio(len(block), streamed=self.wish.stream)
                yield block
        self._ended = True

    async def whole(self, recording: Recording, max_samples: int | None = None) -> np.ndarray:
        """All samples `[L]` float32. Raises what `blocks` raises, and ApiError answer_too_long as soon as there are
        more than `max_samples`."""
        audio = bytearray()  # grows in place: pieces that are joined at the end would be held twice
        async with aclosing(self.blocks(recording)) as blocks:
            async for block in blocks:
                audio += block.data
                if max_samples is not None and len(audio) // 4 > max_samples:
                    message = (
                        f"The answer is over {max_samples:,} samples: send less text, or take binary data or a stream."
                    )
                    raise ApiError(400, "answer_too_long", message)
        return np.frombuffer(audio, np.float32)


async def prepare(speaker: Speaker, wish: SpeechWish, info: ModelInfo) -> Speech:
    """Everything that can be refused is refused here, before any work of the engine.

    Raises ApiError, TextError, AudioError, RequestError.
    """
    check_wish(wish, info)
    return await within(wish.timeout_s, _prepare(speaker, wish, info))


async def within(timeout_s: float | None, preparing: Coroutine[Any, Any, Speech]) -> Speech:
    """What `preparing` returns. Raises ApiError deadline_exceeded."""
    if timeout_s is None:
        return await preparing
    try:
        return await asyncio.wait_for(preparing, timeout_s)
    except asyncio.TimeoutError:
        raise deadline_exceeded() from None


async def first_of(stream: AsyncGenerator[Item, None]) -> Item:
    """The item that decides a stream's status: what fails before any audio is a proper error response."""
    try:
        return await anext(stream)
    except BaseException:
        await stream.aclose()
        raise


async def _prepare(speaker: Speaker, wish: SpeechWish, info: ModelInfo) -> Speech:
    began = time.monotonic()
    passages = await asyncio.to_thread(_read, speaker, wish)
    read = time.monotonic()
    casting = Casting(speaker.backend, speaker.references, speaker.voices, wish, info)
    roles = {voice: await casting.role(voice) for voice in {passage.manner.voice for passage in passages}}
    seed = wish.seed if wish.seed is not None else secrets.randbelow(2**32)
    speech = Speech(speaker.backend, parts_of(passages, roles, wish, seed), wish, info, seed=seed, began=began)
    speech.seconds = {"text": read - began, "voice": time.monotonic() - read}
    spend_characters(len(wish.text))
    return speech


def _read(speaker: Speaker, wish: SpeechWish) -> list[Passage]:
    """On a thread: dictionaries come from a disk, and a long text takes its time."""
    if wish.dictionaries and speaker.dictionaries is None:
        message = "This server keeps no pronunciation dictionaries."
        raise ApiError(400, "unsupported_parameter", message, "pronunciation_dictionary_ids")
    stored = [speaker.dictionaries.get(name) for name in wish.dictionaries] if speaker.dictionaries else []
    return read_passages(speaker.backend.frontend, list(chain.from_iterable(stored)), wish)
