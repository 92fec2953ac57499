"""Finished words that travel through the text front end untouched.

A text may hold the character `chr(LITERAL_BASE + i)`, which stands for literal `i` of the sequence that comes with
it: one word whose sound is settled. Nothing normalises, loses or cuts it; it is put in place when the segments are
built. Text of users never holds such characters: `text.clean` strips the private use area.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LITERAL_BASE = 0xE000  # the private use area of the basic plane
MAX_LITERALS = 0x1900  # of one text; the area ends at U+F8FF
LITERAL = re.compile("[\ue000-\uf8ff]")


@dataclass(frozen=True)
class Literal:
    """One finished word.

    spoken: how it is written in texts for people. tokens: what the model's tokenizer, or a phoneme voice, reads.
    """

    spoken: str
    tokens: str


def placeholder(index: int) -> str:
    """The character that stands for `literals[index]`; index < MAX_LITERALS."""
    return chr(LITERAL_BASE + index)


def fill_spoken(text: str, literals: Sequence[Literal]) -> str:
    """The text as people read it."""
    return LITERAL.sub(lambda match: literals[ord(match[0]) - LITERAL_BASE].spoken, text)


def fill_tokens(text: str, literals: Sequence[Literal]) -> str:
    """The text as the model reads it."""
    return LITERAL.sub(lambda match: literals[ord(match[0]) - LITERAL_BASE].tokens, text)
