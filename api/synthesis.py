"""From what a client wants spoken to its samples: the same whatever protocol asked."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from api.backend import Backend
from api.casting import Casting
from api.deadlines import done_within
from api.errors import ApiError
from api.exchange import current
from api.limits import check_characters, spend_characters
from api.parts import Part, Performance, SegmentTime, Summary, deadline_exceeded
from api.passages import arriving_part, parts_of, passages_of
from api.references import ReferenceVoices
from api.telemetry import Recording
from api.tracing import stage
from api.wish import SpeechWish, check_wish
from runners.request import ModelInfo
from text.frontend import Segment

if TYPE_CHECKING:
    from api.dictionaries import DictionaryStore
    from runners.voice_store import VoiceStore

__all__ = ["SegmentTime", "Speaker", "Speech", "SpeechWish", "Summary", "prepare"]

Item = TypeVar("Item")
MAX_WHOLE_SAMPLES = 2**25
"""Of one answer that is not streamed: 23 minutes at 24 kHz, 128 MiB as FP32, held several times while it is written."""


@dataclass(frozen=True)
class Speaker:
    """What every protocol needs to speak. `voices` None: nothing is saved here; `dictionaries` alike."""

    backend: Backend
    references: ReferenceVoices
    voices: VoiceStore | None = None
    dictionaries: DictionaryStore | None = None


@dataclass
class Room:
    """For the samples that are held until an answer is whole; answers that are sent as one share it."""

    most: int = MAX_WHOLE_SAMPLES
    refusal: str = "The answer is over {most:,} samples: send less text, or ask for a stream."
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, samples: int) -> None:
        """Raises ApiError answer_too_long."""
        if samples > self.left:
            raise ApiError(400, "answer_too_long", self.refusal.format(most=self.most))
        self.left -= samples


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
        self._parts = parts
        self._performance = Performance(backend, parts, info, self.sample_rate, continues=wish.continues)
        self._ended = False

    @property
    def mode(self) -> str:
        """In which its first part is spoken, as the metrics have it."""
        request = next(part.request for part in self._parts if part.request is not None)
        if request.source_tokens:
            return "conversion"
        if request.instructions is not None:
            return "instruct"
        if request.conditioning is None:
            return "preset"
        if self.wish.ref_audio is None:
            return "saved"
        return "cross_lingual" if request.prompt_text is None else "zero_shot"

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
        the engine's request. Its characters are charged with the first block, what arrives later with the next ones:
        what the engine refuses costs nothing.

        Raises RequestError, AudioError, and ApiError deadline_exceeded, rate_limited."""
        recording.started(self.sample_rate, self.mode)
        if (exchange := current()) is not None:
            exchange.speaks(self.wish.text, self.mode)
        charged = 0
        async with aclosing(self._performance.blocks(self._deadline)) as blocks:
            async for block in blocks:
                charged = self._charge(charged, recording)
                recording.audio(len(block), streamed=self.wish.stream)
                if exchange is not None:
                    exchange.heard(len(block) / self.sample_rate, recording.seconds_to_first_audio)
                yield block
        self._charge(charged, recording)
        if self.wish.arriving is not None and exchange is not None:
            exchange.speaks(self.wish.arriving.text, self.mode)
        self._ended = True

    def _charge(self, charged: int, recording: Recording) -> int:
        """For what was written beyond the first `charged` characters. Returns how many there are now."""
        written = len(self.wish.text if self.wish.arriving is None else self.wish.arriving.text)
        if written > charged:
            spend_characters(written - charged)
            recording.spoke(written - charged)
        return written

    async def whole(self, recording: Recording, room: Room | None = None) -> np.ndarray:
        """All samples `[L]` float32, which take what they need of `room` (None: the usual one). Raises what `blocks`
        raises, and ApiError answer_too_long as soon as there is no more room."""
        room = room or Room()
        audio = bytearray()  # grows in place: pieces that are joined at the end would be held twice
        try:
            async with aclosing(self.blocks(recording)) as blocks:
                async for block in blocks:
                    room.take(len(block))
                    audio += block.data
        except BaseException:
            room.left += len(audio) // 4
            raise
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
        return await done_within(timeout_s, preparing)
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
    casting = Casting(speaker.backend, speaker.references, speaker.voices, wish, info)
    if wish.arriving is not None:
        seed = wish.seed if wish.seed is not None else secrets.randbelow(2**32)
        part = arriving_part(await casting.role(), wish, wish.arriving, seed)
        return Speech(speaker.backend, [part], wish, info, seed=seed, began=began)
    check_characters(len(wish.text))
    with stage("normalise"):
        passages = await passages_of(speaker.backend.frontend, speaker.dictionaries, wish)
    read = time.monotonic()
    roles = {voice: await casting.role(voice) for voice in {passage.manner.voice for passage in passages}}
    seed = wish.seed if wish.seed is not None else secrets.randbelow(2**32)
    speech = Speech(speaker.backend, parts_of(passages, roles, wish, seed), wish, info, seed=seed, began=began)
    speech.seconds = {"text": read - began, "voice": time.monotonic() - read}
    return speech
