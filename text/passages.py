"""What marked-up text comes to: passages of one voice and manner each, with pauses between them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from text.literals import LITERAL, MAX_LITERALS, Literal, placeholder

MAX_PASSAGES = 500
MAX_PAUSE_SECONDS = 600.0  # of a whole script

_ONLY_MARKS = re.compile(r"[\s.,;:!?…。，、；：！？\"'“”‘’()（）—–-]*")
_CLOSING_MARKS = re.compile(r"\s*([.,;:!?…。，、；：！？”’)）]+)")


@dataclass(frozen=True)
class Manner:
    """How text is said; the fields of Passage of the same names."""

    voice: str | None = None
    speed: float = 1.0
    volume: float = 1.0
    pitch: float = 1.0
    language: str | None = None


@dataclass(frozen=True)
class Passage:
    """What is said in one manner.

    text: not normalised yet; "" where a script begins with a pause. literals: what its placeholders stand for.
    voice None: that of the request. speed: factor. volume: factor of amplitude. pitch: factor of frequency.
    language None: found in the text. break_after_s: seconds of silence behind it.
    """

    text: str
    literals: tuple[Literal, ...]
    voice: str | None
    speed: float
    volume: float
    pitch: float
    language: str | None
    break_after_s: float = 0.0


class Script:
    """Passages while they are written. Its methods raise ValueError with a sentence when a limit is passed."""

    def __init__(self) -> None:
        self._passages: list[Passage] = []
        self._pauses = 0.0
        self._manner = Manner()  # of the passage that is being written, as the following are
        self._text: list[str] = []
        self._literals: dict[Literal, int] = {}
        self._apart = False  # the last piece of text was a word of its own

    def add(self, manner: Manner, text: str, apart: bool = False) -> None:
        """apart: a word of its own, that does not melt with what stands next to it."""
        if not text:
            return
        if text.strip():
            self._change(manner)
        if self._text and ((apart and _is_word(self._text[-1][-1])) or (self._apart and _is_word(text[0]))):
            self._text.append(" ")
        self._text.append(text)
        self._apart = apart

    def add_literal(self, manner: Manner, word: Literal) -> None:
        self._change(manner)
        index = self._literals.setdefault(word, len(self._literals))
        if index >= MAX_LITERALS:
            raise ValueError(f"A passage has over {MAX_LITERALS:,} different words with sounds of their own.")
        self.add(manner, placeholder(index), apart=True)

    def end_sentence(self) -> None:
        if self._text:
            self._text.append("\n\n")  # ends a sentence that has no mark of its own, in any language

    def pause(self, seconds: float) -> None:
        self._pauses += seconds
        if self._pauses > MAX_PAUSE_SECONDS:
            raise ValueError(f"The breaks come to over {MAX_PAUSE_SECONDS:g} seconds.")
        self._finish(seconds)

    def end(self) -> list[Passage]:
        """All passages, in order."""
        self._finish()
        return self._passages

    def _change(self, manner: Manner) -> None:
        """Text of another manner begins another passage."""
        if manner != self._manner:
            self._finish()
            self._manner = manner

    def _finish(self, pause: float = 0.0) -> None:
        text, literals = "".join(self._text), tuple(self._literals)
        self._text, self._literals, self._apart = [], {}, False
        last = self._passages[-1] if self._passages else None
        if last and last.text and not last.break_after_s and (marks := _CLOSING_MARKS.match(text)):
            # They belong to the words in front of them, whatever manner these have.
            self._passages[-1] = last = replace(last, text=last.text + marks[1])
            text = text[marks.end() :]
        if not _ONLY_MARKS.fullmatch(text):
            self._passages.append(Passage(text.strip(), literals, **vars(self._manner), break_after_s=pause))
        elif last:
            self._passages[-1] = replace(last, break_after_s=last.break_after_s + pause)
        elif pause:
            self._passages.append(Passage("", (), **vars(self._manner), break_after_s=pause))
        if len(self._passages) > MAX_PASSAGES:
            raise ValueError(f"Breaks and changes of voice or manner make over {MAX_PASSAGES} passages.")


def _is_word(character: str) -> bool:
    """A letter, digit or sign ($) of a script that parts its words, or a literal."""
    if LITERAL.match(character):
        return True
    return character < "\u2e80" and (character.isalnum() or unicodedata.category(character)[0] == "S")
