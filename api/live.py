"""Speech for text that is still arriving: sentences spoken one after the other, the next one begun meanwhile.

A session of any protocol cuts its text with `text.incremental`, says each piece to a `Narrator` and is told, as a
`Listener`, what there is to send. While one sentence is heard the next one is under way, never more than one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from api.errors import ApiError, as_api_error
from api.passages import WORDLESS
from api.synthesis import Speaker, Speech, SpeechWish, prepare
from api.telemetry import Recording, failure_recorded
from audio.encode import Encoder
from runners.request import ModelInfo

logger = logging.getLogger("cosyserve.api")


@dataclass(frozen=True)
class Line:
    """One piece of text to be spoken, as part of utterance number `utterance`. `timed`: its segments' times matter."""

    wish: SpeechWish
    utterance: int
    audio_format: str
    timed: bool = False


@dataclass(frozen=True)
class EndOfUtterance:
    """Behind the last line of an utterance."""

    utterance: int


@dataclass(frozen=True)
class Place:
    """Sentence number `sentence` of utterance number `utterance`, both from 0."""

    utterance: int
    sentence: int


@dataclass(frozen=True)
class Spoken:
    """A line of which there is audio."""

    place: Place
    line: Line
    speech: Speech
    encoder: Encoder


class Listener(Protocol):
    """The session's side. Sentence by sentence: `begun`, any number of `audio`, then `ended` or `broken`."""

    def encoder(self, line: Line, speech: Speech) -> Encoder:
        """What encodes a line. Raises AudioError."""

    async def begun(self, spoken: Spoken) -> None: ...

    async def audio(self, data: bytes) -> None: ...

    async def ended(self, spoken: Spoken) -> None:
        """All of it was sent; the speech has its summary."""

    async def broken(self, place: Place, reason: str) -> None:
        """A sentence that had begun will not be whole: `reason` is "cancelled" or "error"."""

    async def failed(self, utterance: int, problem: ApiError) -> None:
        """What is left of the utterance will not be spoken."""

    async def finished(self, utterance: int, sentences: int, reason: str) -> None:
        """All of an utterance that will be spoken has been: `reason` is "stop", "cancelled" or "error"."""


class Narrator:
    """Speaks lines in their order. `run` until it is cancelled, or returns after `finish` and all that was said."""

    def __init__(self, speaker: Speaker, info: ModelInfo, route: str) -> None:
        self._speaker, self._info, self._route = speaker, info, route
        self._script: deque[Line | EndOfUtterance] = deque()
        self._news = asyncio.Event()
        self._finishing = False
        self._current: _Sentence | None = None
        self._ahead: _Sentence | None = None
        self._place: Place | None = None  # of a sentence that has begun and not ended
        self._sentences = 0  # of the utterance that is spoken
        self._given_up: int | None = None  # the utterance of which nothing more is spoken

    @property
    def idle(self) -> bool:
        """Whether everything that was said has been spoken."""
        return not (self._script or self._current or self._ahead)

    def say(self, item: Line | EndOfUtterance) -> None:
        self._script.append(item)
        self._news.set()

    def finish(self) -> None:
        """Nothing more will be said."""
        self._finishing = True
        self._news.set()

    def drop_rest(self) -> None:
        """Speak the current sentence to its end, and nothing else."""
        self._script.clear()
        if self._ahead is not None:
            self._given_up = self._ahead.line.utterance
        self.finish()

    async def run(self, listener: Listener) -> None:
        """Raises what the listener raises. Cancelled, it tells the listener of the sentence it broke off."""
        try:
            while (item := await self._next()) is not None:
                if isinstance(item, EndOfUtterance):
                    await self._end(item.utterance, listener)
                else:
                    await self._speak(item, listener)
        finally:
            for sentence in (self._current, self._ahead):
                if sentence is not None:
                    await sentence.close()
            self._current = self._ahead = None

    async def cancelled(self, utterances: Iterable[int], listener: Listener) -> None:
        """To be called after `run` was cancelled: brings what it left open, those `utterances`, to its end."""
        if self._place is not None:
            await listener.broken(self._place, "cancelled")
            self._place = None
        for utterance in utterances:
            sentences, self._sentences = self._sentences, 0
            await listener.finished(utterance, sentences, "cancelled")

    async def _next(self) -> _Sentence | EndOfUtterance | None:
        while not (self._ahead or self._script or self._finishing):
            self._news.clear()
            await self._news.wait()
        following = self._script[0] if self._script else None
        if self._ahead is not None and not (
            isinstance(following, EndOfUtterance) and following.utterance < self._ahead.line.utterance
        ):
            self._current, self._ahead = self._ahead, None
            return self._current
        if following is None:
            return None
        self._script.popleft()
        if isinstance(following, EndOfUtterance):
            return following
        self._current = self._open(following)
        return self._current

    def _open(self, line: Line) -> _Sentence:
        heard = self._place is not None or self._sentences > 0
        line = replace(line, wish=replace(line.wish, continues=heard))
        return _Sentence(self._speaker, self._info, line, self._route)

    def _look_ahead(self) -> None:
        """Begin the next line, so that no gap is heard; ends of utterances before it are told of in their turn."""
        if self._ahead is not None:
            return
        line = next((item for item in self._script if isinstance(item, Line)), None)
        if line is not None:
            self._script.remove(line)
            self._ahead = self._open(line)

    async def _speak(self, sentence: _Sentence, listener: Listener) -> None:
        utterance = sentence.line.utterance
        try:
            if utterance != self._given_up:
                await self._perform(sentence, listener)
        except _SpeechError as failure:
            if failure.problem.code not in WORDLESS:  # such as a line of dashes between others
                self._given_up = utterance
                await self._tell_failure(utterance, failure, listener)
        finally:
            await sentence.close()
            if (arriving := sentence.line.wish.arriving) is not None:
                arriving.end()  # what is written from now on is nothing to it, whatever ended it
            self._current = None

    async def _perform(self, sentence: _Sentence, listener: Listener) -> None:
        with _speech_errors():
            block = await sentence.first_block()
            encoder = listener.encoder(sentence.line, sentence.speech)
            data = encoder.begin()
        self._place = Place(sentence.line.utterance, self._sentences)
        spoken = Spoken(self._place, sentence.line, sentence.speech, encoder)
        await listener.begun(spoken)
        while block is not None:
            self._look_ahead()
            with _speech_errors(), sentence.recording.encoding():
                # In a thread, as the loop feeds every stream.
                data += await asyncio.to_thread(encoder.feed, block)
            if data:
                await listener.audio(data)
            with _speech_errors():
                data, block = b"", await sentence.next_block()
        with _speech_errors():
            data += encoder.end()
        if data:
            await listener.audio(data)
        sentence.recording.finished("ok")
        self._place = None
        self._sentences += 1
        await listener.ended(spoken)

    async def _tell_failure(self, utterance: int, failure: _SpeechError, listener: Listener) -> None:
        problem = failure.problem
        ours = problem.status >= 500
        logger.warning("a sentence ended with %s", problem.code, exc_info=failure.__cause__ if ours else None)
        if self._place is not None:
            place, self._place = self._place, None
            await listener.broken(place, "error")
        await listener.failed(utterance, problem)

    async def _end(self, utterance: int, listener: Listener) -> None:
        sentences, self._sentences = self._sentences, 0
        if not sentences and utterance != self._given_up:
            self._given_up = utterance
            problem = ApiError(400, "no_speakable_text", "The text has nothing that can be spoken.", "text")
            await listener.failed(utterance, problem)
        await listener.finished(utterance, sentences, "error" if utterance == self._given_up else "stop")


class _SpeechError(Exception):
    """A sentence cannot be spoken, which is no fault of the session."""

    def __init__(self, problem: ApiError) -> None:
        super().__init__(problem.code)
        self.problem = problem


@contextmanager
def _speech_errors() -> Iterator[None]:
    """What making the audio fails with; what sending it fails with is the session's."""
    try:
        yield
    except Exception as error:
        raise _SpeechError(as_api_error(error)) from error


class _Sentence:
    """A line on its way from its first token on: begun at once, its blocks taken when their turn comes."""

    def __init__(self, speaker: Speaker, info: ModelInfo, line: Line, route: str) -> None:
        self.line = line
        self.recording = Recording(route, ahead=True)
        self.speech: Speech
        self._blocks: AsyncGenerator[np.ndarray, None] | None = None
        self._opening = asyncio.create_task(self._open(speaker, info))

    async def _open(self, speaker: Speaker, info: ModelInfo) -> np.ndarray | None:
        with failure_recorded(self.recording):
            self.speech = await prepare(speaker, self.line.wish, info)
            self._blocks = self.speech.blocks(self.recording)
            return await anext(self._blocks, None)

    async def first_block(self) -> np.ndarray | None:
        """Its turn has come. `[L]` float32. Raises what `prepare` and `Speech.blocks` raise."""
        self.recording.turn()
        return await self._opening

    async def next_block(self) -> np.ndarray | None:
        """None after the last."""
        assert self._blocks is not None, "there was a first block"
        with failure_recorded(self.recording):
            return await anext(self._blocks, None)

    async def close(self) -> None:
        """However far it came: the engine's request ends with it."""
        self._opening.cancel()
        await asyncio.gather(self._opening, return_exceptions=True)
        if self._blocks is not None:
            await self._blocks.aclose()
        self.recording.finished("cancelled")  # unless it ended before
