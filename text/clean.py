"""Cleans raw user text: what cannot be spoken or could steer the model goes, what is said stays.

Nothing here knows a language. After `clean` a text holds no control or invisible character, no emoji, no
`<|...|>` token of the model, only single spaces between words, and plain letters and digits in place of their
full-width, circled or mathematical twins.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from text.errors import TextError
from text.literals import LITERAL, LITERAL_BASE

# Pictographs, dingbats, flags and their parts. Joiners, variation selectors, keycaps and tag characters are
# invisible characters and go as such, so that a whole grapheme cluster disappears, never half of one.
_EMOJI = re.compile(
    "[\U0001f000-\U0001f0ff\U0001f1e6-\U0001f1ff\U0001f200-\U0001f2ff\U0001f300-\U0001faff"
    "\u2600-\u27bf\u2b00-\u2bff\u23cf\u23e9-\u23fa\u231a\u231b\u2328\u25aa-\u25fe\u20e3\u3030\u303d\u3297\u3299]+"
)
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co"})
_VARIATION_SELECTORS = frozenset(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
_FOLDED = frozenset({"<wide>", "<narrow>", "<font>", "<circle>", "<compat>", "<square>", "<sub>", "<noBreak>"})
_CONTROL_TOKEN = re.compile(r"<\|[^<>|]*\|>")
_BLANKS = re.compile(r"[^\S\n]+")
_BREAK = re.compile(r" ?\n[ \n]*")
LIST_ITEM = re.compile(r"(?:[-*•·]|\d{1,2}[.)])\s")
_SPACES = re.compile(r"\s+")
_SPACE_BEFORE_MARK = re.compile(r" +([,.;:!?](?![\w.]))")
_MARKS_ON_A_LETTER = 2  # no spoken language piles up more
_LINE_BREAKS = str.maketrans({"\r": "\n", "\u2028": "\n", "\u2029": "\n", "\x0b": "\n", "\x0c": "\n", "\x85": "\n"})


def clean(text: str, literals: int = 0) -> str:
    """Speakable text on one line; "" when nothing is left. Linear time.

    literals: how many placeholders of `text.literals` the text may hold; all other private characters go.
    A blank line, or a line that starts a list item, ends a sentence that has no mark of its own.
    Raises TextError input_not_utf8 for lone surrogates (they are not text in any encoding).
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise TextError("input_not_utf8", "The input holds a lone surrogate, so it is not valid UTF-8 text.")
    text = text.replace("\r\n", "\n").translate(_LINE_BREAKS)
    kept = range(LITERAL_BASE, LITERAL_BASE + literals)
    text = "".join(character if ord(character) in kept else _fold(character) for character in text)
    text = unicodedata.normalize("NFC", _without_piled_marks(text))
    text = without_control_tokens(_EMOJI.sub(" ", text))
    text = _BREAK.sub(_end_of_line, _BLANKS.sub(" ", text).strip())
    return _SPACE_BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", text)).strip()


def without_control_tokens(text: str) -> str:
    """A space in place of each `<|...|>`, never nothing: what stood around a removed token cannot form a new one."""
    return _CONTROL_TOKEN.sub(" ", text).replace("<|", " ").replace("|>", " ")


@lru_cache(maxsize=4096)
def _fold(character: str) -> str:
    """One character in its plain form: ２ → 2, Ⅲ → III, ① → 1, NBSP → space; "" for an invisible one.

    Unlike NFKC it leaves punctuation (，！…), superscripts (x² is not x2) and fractions (½) as they are.
    """
    if character < "\x7f":
        return character if character >= " " or character in "\n\t" else ""
    category = unicodedata.category(character)
    if category in _INVISIBLE_CATEGORIES or character in _VARIATION_SELECTORS or character == "\ufffd":
        return ""
    if category.startswith("Z"):
        return " "
    if category == "Nd":
        return str(unicodedata.decimal(character))
    tag, *points = unicodedata.decomposition(character).split() or [""]
    if tag in _FOLDED and not category.startswith("P"):
        return "".join(chr(int(point, 16)) for point in points)
    return character


def _without_piled_marks(text: str) -> str:
    """Few combining marks on each letter: normalisation sorts a run of them in quadratic time."""
    if text.isascii():
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks <= _MARKS_ON_A_LETTER:
            kept.append(character)
    return "".join(kept)


def _end_of_line(match: re.Match[str]) -> str:
    if match[0].count("\n") == 1 and not LIST_ITEM.match(match.string, match.end()):
        return " "
    before = match.string[match.start() - 1]
    if not (before.isalnum() or before in ")）\"”'’" or LITERAL.match(before)):
        return " "
    return "。" if _is_cjk(before) else ". "


def _is_cjk(character: str) -> bool:
    return "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3"
