"""SSML's `say-as`: what a number, date, telephone number or row of letters becomes before the text is normalised.

What a language's own normaliser reads right is only brought into its usual written form; the rest becomes words here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from text import english_numbers
from text.addresses import read_phone
from text.english_words import MONTHS
from text.symbol_words import ADDRESS, digits

_NUMBER = re.compile(r"[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_COMMA_NUMBER = re.compile(r"[+\-−]?(?:\d{1,3}(?:[. ]\d{3})+|\d+)(?:,\d+)?")
_DECIMAL_COMMA = ("de", "es", "fr", "it", "ru")
_TELEPHONE = re.compile(r"\+?[\d\s().\-/]*\d[\d\s().\-/]*")
_TIME = re.compile(r"(\d{1,2})[:.](\d{2})(?:[:.](\d{2}))?\s*(?:([AaPp])\.?[Mm]\.?)?")
_HAS_DIGIT = re.compile(r".*\d.*", re.DOTALL)
_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "CNY": "¥"}
_CODE = f"(?P<code>{'|'.join(_CURRENCIES)})"
_CODE_FIRST = re.compile(rf"{_CODE} ?(?P<amount>\d[\d.,]*)")
_CODE_LAST = re.compile(rf"(?P<amount>\d[\d.,]*) ?{_CODE}")

# Longest first; digits of a date may also stand without anything between them.
_DATE_FORMATS = ("ymd", "mdy", "dmy", "ym", "my", "md", "dm", "y", "m", "d")
_ISO_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_EAST_ASIAN = {"zh": "年月日", "yue": "年月日", "ja": "年月日", "ko": "년월일"}
_MINUS = {"-", "−"}
_WIDTHS = {"y": 4, "m": 2, "d": 2}
_SMALLEST, _LARGEST = {"y": 1, "m": 1, "d": 1}, {"y": 9999, "m": 12, "d": 31}


def say_as(content: str, kind: str, form: str | None, language: str) -> str:
    """Text that is read as `kind` asks.

    kind: SSML's interpret-as; form: its format, for dates. language: one of TextOptions'. Raises LookupError for a kind
    that this language has no reading for, ValueError with a sentence for content that is not of the kind.
    """
    kind = _ALIASES.get(kind, kind)
    if kind == "date":
        return _date(content, form, language)
    if form is not None:
        raise ValueError(f"say-as {kind} takes no format.")
    return _KINDS[kind](content, language)


def _characters(content: str, language: str) -> str:
    """Letters in upper case, one by one; digits and signs by their names."""
    names = ADDRESS[language]
    spoken = [
        digits(character, language) if character in "0123456789" else names.get(character, character.upper())
        for character in content
        if not character.isspace()
    ]
    return " ".join(spoken)


def _digits(content: str, language: str) -> str:
    if not re.fullmatch(r"[\d\s.,-]*\d[\d\s.,-]*", content):
        raise ValueError(f"“{content:.40}” is not a row of digits.")
    return digits(content, language)


def _cardinal(content: str, language: str) -> str:
    number = _number(content, language)
    if language != "en":
        return number
    negative = number[0] in _MINUS
    words = english_numbers.decimal(number.lstrip("+-−"))
    return f"minus {words}" if negative else words


def _ordinal(content: str, language: str) -> str:
    match = re.fullmatch(r"(\d{1,12})(?:st|nd|rd|th)?", content.replace(",", ""))
    if match is None:
        raise ValueError(f"“{content:.40}” has no ordinal.")
    prefixes = {"zh": "第", "yue": "第", "ja": "第", "ko": "제"}
    if language == "en":
        return english_numbers.ordinal(int(match[1]))
    return prefixes[language] + match[1]


def _number(content: str, language: str) -> str:
    """As the language writes it, without marks between thousands. Raises ValueError."""
    if language in _DECIMAL_COMMA and _COMMA_NUMBER.fullmatch(content):
        return content.replace(".", "").replace(" ", "")
    if not _NUMBER.fullmatch(content):
        raise ValueError(f"“{content:.40}” is no number like 1,234.5.")
    number = content.replace(",", "")
    return number.replace(".", ",") if language in _DECIMAL_COMMA else number


def _telephone(content: str, language: str) -> str:
    if not _TELEPHONE.fullmatch(content):
        raise ValueError(f"“{content:.40}” is no telephone number.")
    return read_phone(content, language, "digits")


def _time(content: str, language: str) -> str:
    match = _TIME.fullmatch(content)
    if match is None or int(match[1]) > 24 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        raise ValueError(f"“{content:.40}” is no time of day like 14:30 or 2:30pm.")
    hour, half = int(match[1]), (match[4] or "").lower()
    if half and language != "en":
        hour = hour % 12 + 12 * (half == "p")
    seconds = f":{match[3]}" if match[3] else ""
    return f"{hour}:{match[2]}{seconds}" + (f" {half.upper()}M" if half and language == "en" else "")


def _currency(content: str, language: str) -> str:
    """An amount with the code of its currency (EUR 12.50), or as people write it ($12.50)."""
    match = _CODE_FIRST.fullmatch(content) or _CODE_LAST.fullmatch(content)
    if match is None:
        return _as_written(content, language)
    amount, sign = _number(match["amount"], language), _CURRENCIES[match["code"]]
    return f"{amount} {sign}" if language in _DECIMAL_COMMA else f"{sign}{amount}"


def _as_written(content: str, language: str) -> str:
    """For the normaliser, which reads amounts, units and fractions wherever they stand."""
    if not _HAS_DIGIT.fullmatch(content):
        raise ValueError(f"“{content:.40}” holds no number.")
    return content


_Reading = Callable[[str, str], str]
_KINDS: dict[str, _Reading] = {
    "characters": _characters,
    "digits": _digits,
    "cardinal": _cardinal,
    "ordinal": _ordinal,
    "telephone": _telephone,
    "time": _time,
    "currency": _currency,
    "unit": _as_written,
    "fraction": _as_written,
}
_ALIASES = {"spell-out": "characters", "verbatim": "characters", "number": "cardinal", "measure": "unit"}


# -- dates -----------------------------------------------------------------------------------------------------


def _date(content: str, form: str | None, language: str) -> str:
    """A date with its parts in the order of `form` (default: of ISO 8601, else as the language writes it)."""
    if form is None:
        form = "ymd" if _ISO_DATE.fullmatch(content) or language in _EAST_ASIAN else "dmy"
        form = "mdy" if language == "en" and form == "dmy" else form
    if form not in _DATE_FORMATS:
        raise ValueError(f"format is one of {', '.join(_DATE_FORMATS)}.")
    groups = [int(group) for group in _groups(content, form)]
    values = dict(zip(form, groups, strict=False))
    in_range = all(_SMALLEST[part] <= value <= _LARGEST[part] for part, value in values.items())
    if len(groups) != len(form) or not in_range or not re.fullmatch(r"[\d\s./\-年月日년월일]+", content):
        raise ValueError(f"“{content:.40}” is no date of the format {form}.")
    return _written_date(values, language)


def _groups(content: str, form: str) -> list[str]:
    """The numbers of a date; of digits without anything between them as many as each part has."""
    if len(content) != sum(map(_WIDTHS.__getitem__, form)) or not content.isdecimal():
        return re.findall(r"\d{1,4}", content)
    digits = iter(content)
    return ["".join(islice(digits, _WIDTHS[part])) for part in form]


def _written_date(values: dict[str, int], language: str) -> str:
    if language in _EAST_ASIAN:
        gap = " " if language == "ko" else ""
        parts = [(part, unit) for part, unit in zip("ymd", _EAST_ASIAN[language], strict=True) if part in values]
        return gap.join(f"{values[part]}{unit}" for part, unit in parts)
    if language == "en":
        return _english_date(values)
    if len(values) < 3:
        raise LookupError(language)
    day, month, year = values["d"], values["m"], values["y"]
    return f"{day:02}.{month:02}.{year}" if language in ("de", "ru", "it") else f"{day:02}/{month:02}/{year}"


def _english_date(values: dict[str, int]) -> str:
    month = MONTHS[values["m"] - 1] if "m" in values else ""
    day = english_numbers.ordinal(values["d"]) if "d" in values else ""
    year = english_numbers.year(values["y"]) if "y" in values else ""
    if day and year:
        return f"{month} {day}, {year}"
    return " ".join(filter(None, (month, day, year)))
