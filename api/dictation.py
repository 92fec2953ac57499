"""Text that is spoken by the model while it still arrives: word by word into one request of the engine.

Such an utterance ends where a sentence does, where the model may have no more text, or where none comes for a while.
What cannot be read word by word, and what is too long for one utterance, is spoken as any other sentence.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from api.deadlines import done_within
from api.threads import TEXT_READERS, run_in
from runners.request import INCREMENTAL_TOKENS
from text.errors import TextError
from text.frontend import Segment, TextFrontend
from text.incremental import IncrementalText, Portion
from text.options import TextOptions
from text.split import ends_in

PAUSE_SECONDS = 5.0
"""Who writes nothing for so long is not waited for: a place in the engine is given up with what was written."""
UTTERANCE_SECONDS = 60.0
"""Nor does an utterance keep its place for longer, however slowly it is written; the next one takes what follows."""
_CONTEXT = 200  # characters before a portion that tell its language
_STOPS = frozenset(".!?。！？…｡؟।;；:：")


class Arriving:
    """The text of one utterance on its way into the engine. `text`: what was written of it so far."""

    def __init__(self, pause_s: float = PAUSE_SECONDS, longest_s: float = UTTERANCE_SECONDS) -> None:
        self.text = ""
        self.tokens = 2  # its own stop, and what a word may come to without the blank before it
        self.ended = False
        self._spoken = ""
        self._pause_s, self._longest_s = pause_s, longest_s
        self._ready: deque[str] = deque()
        self._news = asyncio.Event()

    def put(self, written: str, spoken: str, tokens: int) -> None:
        """More of it: as written, as the model's tokenizer gets it, and how many tokens that is."""
        self.text += written
        self.tokens += tokens
        self._say(spoken if self._spoken else spoken.lstrip())

    def end(self) -> None:
        """That was all. It ends in a stop, as every text that the model learned from."""
        if self.ended:
            return
        self.ended = True
        if not ends_in(self._spoken, _STOPS):
            self._say("。" if "\u2e80" <= self._spoken[-1:] <= "\u9fff" else ".")
        self._news.set()

    def segment(self) -> Segment:
        """All of it, once it has ended."""
        return Segment(self.text.strip(), self._spoken)

    async def texts(self) -> AsyncGenerator[str, None]:
        """Its portions as the model's tokenizer gets them, until it has ended; it does when none comes for a while, or
        a long time has passed since this began."""
        last = time.monotonic() + self._longest_s
        while True:
            while self._ready:
                yield self._ready.popleft()
            if self.ended:
                return
            self._news.clear()
            try:
                await done_within(min(self._pause_s, last - time.monotonic()), self._news.wait())
            except asyncio.TimeoutError:
                self.end()

    def _say(self, spoken: str) -> None:
        self._spoken += spoken
        self._ready.append(spoken)
        self._news.set()


@dataclass(frozen=True)
class _Read:
    """A portion as the tokenizer gets it; `spoken` None: it cannot be read by itself, `tokens`: how many."""

    portion: Portion
    spoken: str | None
    tokens: int


class Dictation:
    """Takes the portions of a text. `begin` is called with each new utterance, `say` with what is spoken otherwise."""

    def __init__(self, frontend: TextFrontend, begin: Callable[[Arriving], None], say: Callable[[str], None]) -> None:
        self._frontend, self._begin, self._say = frontend, begin, say
        self._arriving: Arriving | None = None
        self._before = ""

    async def feed(self, text: IncrementalText, more: str, options: TextOptions) -> None:
        """`more` of `text`. What it completes is on its way when this returns."""
        await self._take(lambda: text.portions(more), options)

    async def flush(self, text: IncrementalText, options: TextOptions) -> None:
        """The rest of `text`, which ends the utterance."""
        await self._take(text.last_portions, options)
        self.drop()

    def end(self) -> None:
        """What comes next is another utterance."""
        if self._arriving is not None:
            self._arriving.end()
            self._arriving = None

    def drop(self) -> None:
        """What comes next has nothing to do with what came before."""
        self.end()
        self._before = ""

    async def _take(self, portions: Callable[[], list[Portion]], options: TextOptions) -> None:
        for read in await run_in(TEXT_READERS, self._read, portions, options):
            self._put(read)

    def _read(self, portions: Callable[[], list[Portion]], options: TextOptions) -> list[_Read]:
        return [self._read_portion(portion, options) for portion in portions()]

    def _read_portion(self, portion: Portion, options: TextOptions) -> _Read:
        before = self._before
        self._before = (before + portion.text)[-_CONTEXT:]
        try:
            spoken = self._frontend.portion(portion.text, before, options)
        except TextError:  # which is told when the sentence is to be spoken
            return _Read(portion, None, 0)
        return _Read(portion, spoken, self._frontend.count_tokens(spoken) if spoken else 0)

    def _put(self, read: _Read) -> None:
        if read.spoken is None or read.tokens >= INCREMENTAL_TOKENS:
            self.end()
            self._say(read.portion.text)
            return
        current = self._arriving
        if current is not None and (current.ended or current.tokens + read.tokens > INCREMENTAL_TOKENS):
            self.end()
            current = None
        if current is None:
            if not any(map(str.isalnum, read.spoken)):
                return
            current = self._arriving = Arriving()
            self._begin(current)
        current.put(read.portion.text, read.spoken, read.tokens)
        if read.portion.ends:
            self.end()
