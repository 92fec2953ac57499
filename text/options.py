"""What a request may say about how its text is read: its language, and what becomes of parts that are no words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from text.errors import TextError

if TYPE_CHECKING:
    from text.pronunciation import Pronunciation

AUTO = "auto"
LANGUAGES = ("zh", "en", "ja", "ko", "yue", "de", "es", "fr", "it", "ru")

# The values of each option and what they do; the first is the default.
MODES: dict[str, dict[str, str]] = {
    "normalization": {
        "auto": "numbers, dates, units and symbols become words; a language without rules is left to the model",
        "on": "as auto, but a language without rules is refused",
        "off": "text is cleaned and split, but nothing in it is put into words",
    },
    "url": {
        "read": "a web address is read out; of a very long one only the host",
        "domain": "only the host is read out",
        "name": "the word for a link is said instead",
        "skip": "web addresses are left out",
    },
    "email": {
        "read": "an e-mail address is read out",
        "name": "the words for an e-mail address are said instead",
        "skip": "e-mail addresses are left out",
    },
    "phone": {
        "digits": "telephone numbers are read in digits, group by group",
        "number": "telephone numbers are read as the numbers they are written with",
        "skip": "telephone numbers are left out",
    },
    "unit": {
        "expand": "5 km is read as five kilometres",
        "keep": "the unit stays as it is written: five km",
    },
    "markdown": {
        "strip": "the marks of Markdown go, links keep their words, table cells become clauses",
        "keep": "the text is no Markdown: no line is a heading, list, table or block of code",
    },
    "emoji": {
        "skip": "emoji are left out",
        "name": "emoji are read by their Unicode names in the language of the text",
    },
    "code": {
        "skip": "fenced code blocks are left out, which gives a warning; code inside a sentence is read",
        "read": "fenced code blocks are read as text",
    },
    "math": {
        "read": "formulas (LaTeX, too) are put into words",
        "skip": "formulas between $ or \\( \\) are left out",
    },
}


@dataclass(frozen=True)
class TextOptions:
    """How one request's text is read. Raises TextError: invalid_value, unsupported_language.

    language: one of LANGUAGES, or "auto": found by script and words, span by span. Given, it holds for all text in
    the scripts of that language; a span in another script is still read in its own language.
    All others: a value of MODES. pronunciations: applied in this order before anything else is read.
    """

    language: str = AUTO
    normalization: str = "auto"
    url: str = "read"
    email: str = "read"
    phone: str = "digits"
    unit: str = "expand"
    markdown: str = "strip"
    emoji: str = "skip"
    code: str = "skip"
    math: str = "read"
    pronunciations: tuple[Pronunciation, ...] = ()

    def __post_init__(self) -> None:
        if self.language not in (AUTO, *LANGUAGES):
            known = ", ".join(LANGUAGES)
            raise TextError(
                "unsupported_language", f"There is no language {self.language!r:.40}; there are auto, {known}."
            )
        for field in fields(self):
            value, modes = getattr(self, field.name), MODES.get(field.name)
            if modes is not None and value not in modes:
                raise TextError("invalid_value", f"{field.name} is one of {', '.join(modes)}, not {value!r:.40}.")
