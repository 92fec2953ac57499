"""Sets aside what is one thing to a reader: addresses, telephone numbers, formulas, event tags.

Each becomes one private character, which the readers of every language pass through; afterwards it is replaced by its
reading in the language of the span that it stands in. So no rule for numbers or sentences ever cuts an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from text import chinese, korean
from text.english_words import UNITS
from text.formulas import COMMANDS
from text.number_locales import LOCALES
from text.options import TextOptions

_BASE = 0xF0000  # the private use plane: room for more entities than a text has characters
PLACE = re.compile("[\U000f0000-\U000ffffd]")

_LETTERS = r"A-Za-z\u00c0-\u024f"  # of names in addresses; \w would take the Chinese sentence around one, too
_HOST = rf"(?:[{_LETTERS}0-9-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,12}}"
_ENDINGS = (
    "com org net edu gov io ai dev app info biz co uk de fr cn jp us ca au eu me tv ly it es ru kr hk tw ch at nl xyz"
).replace(" ", "|")
_IN_URL = r"[!#-;=?-\[\]^_a-~\u00c0-\u024f\u0400-\u052f]"  # of ASCII, all but space, quotes, <, >, \ and `
_EMAIL = rf"(?<![{_LETTERS}0-9_.+-])[{_LETTERS}0-9_.+-]{{1,64}}@{_HOST}(?![A-Za-z0-9_-])"
_URL = (
    rf"(?<![A-Za-z0-9_])(?i:https?|ftp)://{_IN_URL}+|(?<![A-Za-z0-9_.])(?i:www)\.{_IN_URL}+"
    rf"|(?<![{_LETTERS}0-9_.@-])(?:[{_LETTERS}0-9-]{{2,63}}\.){{1,4}}(?:{_ENDINGS})(?:[/?#]{_IN_URL}*|:\d+(?:/{_IN_URL}*)?)?(?![A-Za-z0-9_-])"
)
_PHONE = (
    r"(?<![A-Za-z0-9_.,+-])(?:"
    r"\+\d{1,3}(?:[ -]\d{1,12}|[ -]?\(\d{1,5}\)\d{0,12}){1,6}|\+\d{7,15}(?!\d)"  # +44 20 7946 0958, +442079460958
    r"|(?:\d[ -])?\(\d{2,5}\)[ -]?\d{2,4}(?:[ -]\d{2,4}){1,3}"  # (555) 123-4567, 8 (495) 123-45-67
    r"|\d{1,4}-\d{2,4}-\d{3,4}(?:-\d{3,4})?"  # 1-800-555-0199, 03-1234-5678, 400-820-8820
    r"|0\d{2,3}-\d{7,8}"  # 010-12345678
    r"|0\d(?:[ .]\d\d){4}"  # 01 23 45 67 89
    r"|0\d{2,4}[ /]\d{5,9}"  # 0171 2345678
    r"|1[3-9]\d{9}"  # 13800138000
    r")(?![A-Za-z0-9_-]|[.,]\d)"
)
_DIGITS = r"(?<![A-Za-z0-9_.,+-])\d{1,5}(?:-\d{1,7}){3,5}(?![A-Za-z0-9_-]|[.,]\d)"  # ISBN, a card
_DATE = re.compile(r"\d{1,4}-\d{1,2}-\d{1,4}")
_FORMULA = (
    r"\$\$[^$]{1,400}\$\$|\\\([^\n]{1,400}?\\\)|\\\[[^\n]{1,400}?\\\]"
    r"|\$(?=[^\s$])(?=[^$]{0,300}[\\^_=+])[^$]{1,300}(?<=\S)\$(?!\d)|(?<!\S)\$[A-Za-z]\$(?![A-Za-z0-9])"
    r"|\\[A-Za-z]{1,20}(?:\[[^\[\]]{0,20}\])?(?:\{[^{}]{0,80}\}){0,2}(?:\{(?:[^{}]|\{[^{}]{0,80}\}){0,200}\}){0,2}"
)
_UNITS = {"℃", "m²", "m³"}.union(UNITS, chinese.UNITS, korean.UNITS, *(locale.units for locale in LOCALES.values()))
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS - {"%"}, key=len, reverse=True))
_AFTER_NUMBER = rf"(?<=\d) ?(?:{_UNIT})(?![{_LETTERS}\u0400-\u052f0-9_²³])"


@dataclass(frozen=True)
class Entity:
    """kind: tag, formula, email, url, phone, digits or unit; written: as in the text."""

    kind: str
    written: str


def set_aside(text: str, options: TextOptions, tags: Collection[str]) -> tuple[str, list[Entity]]:
    """The text with every entity in it replaced by a private character, and the entities in order.

    tags: the event tags and phones of the model, as written; nothing else in brackets is special.
    """
    entities: list[Entity] = []

    def place(match: re.Match[str]) -> str:
        kind, written = str(match.lastgroup), match[0]
        if kind == "tag" and written not in tags:
            return written
        if kind == "phone" and (options.phone == "number" or _is_date(written) or sum(map(str.isdigit, written)) < 7):
            return written
        if kind == "formula" and written[1:].isalpha() and written[1:] not in COMMANDS:
            return f" {written[1:]}"  # C:\Users
        entities.append(Entity(kind, written))
        return chr(_BASE + len(entities) - 1)

    return _pattern(options.unit == "keep").sub(place, text), entities


def set_tags_aside(text: str, tags: Collection[str]) -> tuple[str, list[Entity]]:
    """Only the event tags of the model."""
    entities: list[Entity] = []

    def place(match: re.Match[str]) -> str:
        if match[0] not in tags:
            return match[0]
        entities.append(Entity("tag", match[0]))
        return chr(_BASE + len(entities) - 1)

    return TAG.sub(place, text), entities


def put_back(text: str, entities: list[Entity], read: Callable[[Entity], str]) -> str:
    """The text with each private character replaced by `read` of its entity."""
    return PLACE.sub(lambda match: read(entities[ord(match[0]) - _BASE]), text)


# The shape of what the tokenizers of CosyVoice may know: </strong>, [laughter], [vocalized-noise], [AA0], [ǐ].
TAG = re.compile(r"</?[a-z]{1,20}>|\[[A-Za-z_\u00c0-\u024f-]{1,20}[0-2]?\]")


def _pattern(units: bool) -> re.Pattern[str]:
    kinds = {"tag": TAG.pattern, "formula": _FORMULA, "email": _EMAIL, "url": _URL, "phone": _PHONE, "digits": _DIGITS}
    if units:
        kinds["unit"] = _AFTER_NUMBER
    return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()))


def _is_date(written: str) -> bool:
    """2024-03-09 and 9-3-2024 have the shape of a number of a telephone."""
    return _DATE.fullmatch(written) is not None
