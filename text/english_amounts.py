"""English readings of amounts: money, percentages, quantities with units, fractions, ranges, sums."""

from __future__ import annotations

import re
from collections.abc import Callable

from text import english_numbers as numbers
from text.english_words import (
    CURRENCIES,
    FRACTION_CHARACTERS,
    FRACTION_PARTS,
    FUNCTION_WORDS,
    MAGNITUDES,
    UNITS,
)

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
_CURRENCY = "|".join(re.escape(name) for name in sorted(CURRENCIES, key=len, reverse=True))
_MAGNITUDE = r"hundred|thousand|million|billion|trillion|bn|mn|[kKmMbB]"
_SUPERSCRIPTS = str.maketrans("⁰¹⁴⁵⁶⁷⁸⁹", "01456789")
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
# A lone letter after a space can be many things ("size 5 L"); these are units only when glued to their number.
_GLUED_UNITS = frozenset({"s", "h", "l", "V", "W", "L"})


def _describes(match: re.Match[str]) -> bool:
    """Whether the amount stands before the thing it describes ("a 16GB card"), where English uses the singular."""
    following = re.match(r" ([a-z]+)", match.string[match.end() : match.end() + 24])
    return following is not None and following[1] not in FUNCTION_WORDS


def _money(amount: str, magnitude: str | None, currency: str) -> str:
    one, many, cent, cents = CURRENCIES[currency]
    if magnitude:
        return f"{numbers.decimal(amount)} {MAGNITUDES.get(magnitude, magnitude)} {many}"
    whole, _, fraction = amount.partition(".")
    count = whole.replace(",", "")
    unit = one if count == "1" else many
    if len(fraction) != 2:
        return f"{numbers.decimal(amount)} {one if amount == '1' else many}"
    if fraction == "00":
        return f"{numbers.integer(whole)} {unit}"
    hundredths = f"{numbers.cardinal(int(fraction))} {cent if fraction == '01' else cents}"
    return hundredths if count == "0" else f"{numbers.integer(whole)} {unit} and {hundredths}"


def _money_before(match: re.Match[str]) -> str:
    return ("minus " if match[1] else "") + _money(match[3], match[4], match[2])


def _money_after(match: re.Match[str]) -> str:
    return _money(match[1], match[2], match[3])


def _money_range(match: re.Match[str]) -> str:
    return f"{numbers.decimal(match[2])} to {_money(match[3], match[4], match[1])}"


def _percent(match: re.Match[str]) -> str:
    start = f"{numbers.decimal(match[1])} to " if match[1] else ""
    return f"{start}{numbers.decimal(match[2])} percent"


def _unit(match: re.Match[str]) -> str:
    sign, amount, space, unit, power = match.groups()
    if space == " " and unit in _GLUED_UNITS:
        return match[0]
    one, many = UNITS[unit]
    name = one if amount in ("1", "1.0") or (_describes(match) and not unit.startswith("°")) else many
    power = {"²": "square ", "³": "cubic "}.get(power, "")
    return f"{'minus ' if sign else ''}{numbers.decimal(amount)} {power}{name}"


def _scientific(match: re.Match[str]) -> str:
    sign = "minus " if match[2] == "-" else ""
    return f"{numbers.decimal(match[1])} times ten to the {sign}{numbers.integer(match[3])}"


def _inches(match: re.Match[str]) -> str:
    """A double quote behind a number is inches where no quotation is open."""
    if match.string.count('"', 0, match.start()) % 2:
        return match[0]
    return f"{numbers.decimal(match[1])} {'inch' if _describes(match) else 'inches'}"


def _fraction(match: re.Match[str]) -> str:
    whole, top, bottom = match[1], int(match[2]), int(match[3])
    if (top, bottom) in ((24, 7), (50, 50), (9, 11)):
        return f"{numbers.cardinal(top)} {numbers.cardinal(bottom)}"
    part = FRACTION_PARTS.get(bottom)
    if part is None or top >= bottom:
        joiner = "out of" if top == bottom else "over"
        words = f"{numbers.cardinal(top)} {joiner} {numbers.cardinal(bottom)}"
    elif top == 1:
        words = f"{'a' if whole else 'one'} {part}"
    else:
        words = f"{numbers.cardinal(top)} {'halves' if part == 'half' else part + 's'}"
    return f"{numbers.integer(whole)} and {words}" if whole else words


def _range(match: re.Match[str]) -> str:
    first, second = match[1], match[2]
    if all(re.fullmatch(r"1[1-9]\d\d|20\d\d", value) for value in (first, second)):
        return f"{numbers.year(int(first))} to {numbers.year(int(second))}"
    return f"{numbers.decimal(first)} to {numbers.decimal(second)}"


AMOUNT_RULES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<=\d)(?=[½⅓⅔¼¾⅕⅛])"), " "),
    (re.compile("[½⅓⅔¼¾⅕⅛]"), lambda match: FRACTION_CHARACTERS[match[0]]),
    (re.compile(r"(?<![\w.,])(\d{1,6}),(\d\d)(?=\s?€)"), r"\1.\2"),
    (
        re.compile(
            rf"(?<!\w)({_CURRENCY})\s?({_NUMBER})\s?[-–]\s?(?:{_CURRENCY})?\s?({_NUMBER})(?:\s?({_MAGNITUDE})(?!\w))?(?![\d])"
        ),
        _money_range,
    ),
    (re.compile(rf"([-−])?(?<!\w)({_CURRENCY})\s?({_NUMBER})(?:\s?({_MAGNITUDE})(?!\w))?"), _money_before),
    (re.compile(rf"(?<![\w.,])({_NUMBER})(?:\s?({_MAGNITUDE}))?\s?({_CURRENCY})(?!\w)"), _money_after),
    (re.compile(rf"(?<![\w.,])({_NUMBER})\s?¢"), lambda match: f"{numbers.decimal(match[1])} cents"),
    (re.compile(r"(?<!\w)(dollars?|cents?|pounds?|pence|euros?|yen)\s?/\s?(?=[a-z])"), r"\1 per "),
    (re.compile(rf"(?<![\w.,])(?:({_NUMBER})\s?[-–]\s?)?({_NUMBER})\s?%"), _percent),
    (
        re.compile(r"(?<![\w.])(\d)'\s?(\d{1,2})(?:\"|'')"),
        lambda match: f"{numbers.integer(match[1])} foot {numbers.integer(match[2])}",
    ),
    (re.compile(r"(?<![\w.])(\d+)'(?= (?:tall|long|wide|high|deep|by)(?!\w))"), r"\1 feet"),
    (re.compile(rf"(?<![\w.,])({_NUMBER})\"(?=\s[a-z])"), _inches),
    (
        re.compile(rf"(?<![\w.,)])([-−])?(?<![\w.,])({_NUMBER})([\s-]?)({_UNIT})([²³])?(?:\.(?=\s[a-z])|(?![\w²³]))"),
        _unit,
    ),
    (re.compile(r"(?<![\w./])(?:(\d{1,3})[ -])?(\d{1,3})/(\d{1,3})(?![\w/]|\.\d)"), _fraction),
    (re.compile(r"(?<=\d)\s?[×*]\s?(?=\d)|(?<=\d) x (?=\d)"), " times "),
    (re.compile(r"(?<=\d)x(?=\d)"), " by "),
    (re.compile(r"(?<![\w.,])(\d+(?:\.\d+)?)x(?!\w)"), r"\1 times"),
    (re.compile(rf"(?<![\w.,])({_NUMBER})[eE]([-+]?)(\d{{1,3}})(?!\w)"), _scientific),
    (re.compile(r"(?<=\d) [-−] (?=\d[\d.,]*\s?=)"), " minus "),
    (re.compile(rf"(?<![\w.,-])({_NUMBER})\s?[-–]\s?({_NUMBER})(?![\w-]|\.\d)"), _range),
    (re.compile(r"\^2(?!\d)|²"), " squared"),
    (re.compile(r"\^3(?!\d)|³"), " cubed"),
    (re.compile(r"(?<=\d)([⁰¹⁴-⁹]+)"), lambda match: f" to the power of {match[1].translate(_SUPERSCRIPTS)}"),
]
