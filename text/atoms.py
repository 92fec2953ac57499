"""The atoms of text that still arrives: what is never cut, such as words, numbers, URLs, tags and blocks of code."""

from __future__ import annotations

import re
import unicodedata

LONGEST_WORD = 1000
"""Characters without a gap: more than this is no word, number or URL that anybody would speak, and is cut."""
_LONGEST_SPACE = 64
_LONGEST_CLUSTER = 64

# Scripts written without spaces, and their marks. Full-width digits and letters form words, like plain ones.
_WIDE = (
    "\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uffef\U00020000-\U0003ffff"
)
IS_WIDE = re.compile(f"[{_WIDE}]")

# What opens an atom, what closes it, how far away: without a closing in reach it is plain text.
_SPANS = (
    (re.compile("```"), "```", 19_000),
    (re.compile("<strong>"), "</strong>", 400),
    (re.compile("<laughter>"), "</laughter>", 400),
    (re.compile(r"<(?=[A-Za-z/|!?])"), ">", 400),
    (re.compile(r"\[(?=\S)"), "]", 64),
)
_WORD = re.compile(rf"[^\s{_WIDE}](?:(?!```|<[A-Za-z/|!?]|\[\S)[^\s{_WIDE}])*")
SPACE = re.compile(r"\s+")


def atom_end(text: str, start: int, final: bool) -> int | None:
    """Where the atom that begins at `start` ends; None: text to come may be part of it."""
    end = start + 1
    if space := SPACE.match(text, start, start + _LONGEST_SPACE):
        end = space.end()
    elif not IS_WIDE.match(text, start):
        span = _span_end(text, start, final)
        if span is None:
            return None
        if span:
            end = span
        elif word := _WORD.match(text, start, start + LONGEST_WORD):
            end = word.end()
            if end == start + LONGEST_WORD < len(text):
                end = _cluster_start(text, end)
    return end if final or end < len(text) else None


def _span_end(text: str, start: int, final: bool) -> int | None:
    """Where the tag or block that opens at `start` ends, 0 where none does; None: that is not settled yet."""
    for opening, closing, reach in _SPANS:
        if opened := opening.match(text, start):
            found = text.find(closing, opened.end(), start + reach)
            if found >= 0:
                return found + len(closing)
            if not final and len(text) < start + reach:
                return None
    return 0


def is_cut_short(atom: str, following: str) -> bool:
    """Whether `atom` is the part that was taken of a word without end; `following`: the next character."""
    return len(atom) >= LONGEST_WORD - _LONGEST_CLUSTER and _WORD.fullmatch(atom + following) is not None


def _cluster_start(text: str, cut: int) -> int:
    """The last place up to `cut` that parts no accent, joiner, skin tone or flag from its character."""
    for place in range(cut, cut - _LONGEST_CLUSTER, -1):
        if not _joined(text, place):
            return place
    return cut


def _joined(text: str, cut: int) -> bool:
    before, after = text[cut - 1], text[cut]
    if before == "\u200d" or after == "\u200d" or unicodedata.combining(after):
        return True
    if "\ufe00" <= after <= "\ufe0f" or after == "\u20e3" or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    return "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff"
