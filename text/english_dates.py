"""English readings of dates and times of day."""

from __future__ import annotations

import re
from collections.abc import Callable

from text import english_numbers as numbers
from text.english_words import MONTH_NUMBERS, MONTHS

_MONTH = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))
_DECADES = {
    "1": "tens",
    "2": "twenties",
    "3": "thirties",
    "4": "forties",
    "5": "fifties",
    "6": "sixties",
    "7": "seventies",
    "8": "eighties",
    "9": "nineties",
}


def _date(month: int, day: int, year: str | None) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{MONTHS[month - 1]} {numbers.ordinal(day)}" + (f", {numbers.year(int(year))}" if year else "")


def _iso(match: re.Match[str]) -> str:
    return _date(int(match[2]), int(match[3]), match[1]) or match[0]


def _slashed(match: re.Match[str]) -> str:
    """12/25/2023, and 25/12/2023 where only that makes sense."""
    first, second, year = int(match[1]), int(match[2]), match[3]
    if len(year) == 2:
        year = ("19" if year > "40" else "20") + year
    return _date(first, second, year) or _date(second, first, year) or match[0]


def _dotted(match: re.Match[str]) -> str:
    return _date(int(match[2]), int(match[1]), match[3]) or match[0]


def _month_day(match: re.Match[str]) -> str:
    return _date(MONTH_NUMBERS[match[1]], int(match[2]), match[3]) or match[0]


def _month_days(match: re.Match[str]) -> str:
    start = _date(MONTH_NUMBERS[match[1]], int(match[2]), None)
    return f"{start} to {numbers.ordinal(int(match[3]))}" if start and 1 <= int(match[3]) <= 31 else match[0]


def _day_month(match: re.Match[str]) -> str:
    if not 1 <= int(match[1]) <= 31:
        return match[0]
    year = f", {numbers.year(int(match[3]))}" if match[3] else ""
    return f"the {numbers.ordinal(int(match[1]))} of {MONTHS[MONTH_NUMBERS[match[2]] - 1]}{year}"


def _month_year(match: re.Match[str]) -> str:
    return f"{MONTHS[MONTH_NUMBERS[match[1]] - 1]} {numbers.year(int(match[2]))}"


def _decade(match: re.Match[str]) -> str:
    century, tens = match[1] or "", match[match.lastindex or 2]
    if tens == "0":
        return (
            f"{numbers.cardinal(int(century) * 100)}s"
            if century == "20"
            else f"{numbers.cardinal(int(century))} hundreds"
        )
    return f"{numbers.cardinal(int(century))} {_DECADES[tens]}" if century else _DECADES[tens]


def _half_of_day(match: re.Match[str], letter: str) -> str:
    """AM or PM; the dot of "p.m." ends a sentence too when a new one follows."""
    rest = match.string[match.end() : match.end() + 6]
    ends = match[0].endswith(".") and (not rest.strip() or re.match(r"\s+[\"'(]?[A-Z][a-z']", rest))
    return f" {letter.upper()}M" + ("." if ends else "")


def _time(match: re.Match[str]) -> str:
    hour, minute, second, letter = int(match[1]), match[2], match[3], match[4]
    if minute == "00":
        minutes = "" if letter or second else (" o'clock" if 0 < hour <= 12 else " hundred")
    else:
        minutes = f" {'oh ' if minute[0] == '0' else ''}{numbers.cardinal(int(minute))}"
    seconds = f" and {numbers.cardinal(int(second))} seconds" if second else ""
    return numbers.cardinal(hour) + minutes + seconds + (_half_of_day(match, letter) if letter else "")


def _hour(match: re.Match[str]) -> str:
    return numbers.cardinal(int(match[1])) + _half_of_day(match, match[2])


_DAYS = "Mon|Tues?|Wed|Thu|Thur|Thurs|Fri|Sat|Sun"
_HALF = r"(?:\s?([AaPp])\.?[Mm](?:\.|(?!\w)))"

DATE_RULES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<![\w.-])(\d{4})-(\d{2})-(\d{2})(?![\w-])"), _iso),
    (re.compile(r"(?<![\w./])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])"), _slashed),
    (re.compile(r"(?<![\w./])(\d{1,2})\.(\d{1,2})\.(\d{4})(?![\w/])"), _dotted),
    (re.compile(rf"(?<!\w)({_MONTH})\.? (\d{{1,2}})\s?[-–]\s?(\d{{1,2}})(?![\w:%-])"), _month_days),
    (
        re.compile(
            rf"(?<!\w)({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?![\w:%]|\.\d|,\d{{3}}| ?[ap]\.?m)"
            r"(?:,? (\d{4})(?!\d))?"
        ),
        _month_day,
    ),
    (
        re.compile(
            rf"(?<![\w.:/-])(?:[Tt]he )?(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})(?!\w)\.?(?:,? (\d{{4}})(?!\d))?"
        ),
        _day_month,
    ),
    (re.compile(rf"(?<!\w)({_MONTH})\.?,? ((?:1[1-9]|20)\d\d)(?!\w)"), _month_year),
    (re.compile(r"(?<![\w.'])(1[1-9]|20)(\d)0'?s(?!\w)"), _decade),
    (
        re.compile(
            r"(?<!\w)()'([1-9])0s(?!\w)|(?<![\w.,])()([5-9])0s(?!\w)"
            r"|(?:(?<=the )|(?<=early )|(?<=late )|(?<=mid-))()([2-9])0s(?!\w)"
        ),
        _decade,
    ),
    (re.compile(r"(?<=[\dmM.])\s?[-–]\s?(?=\d{1,2}(?::\d\d|\s?[AaPp]\.?[Mm](?!\w)))"), " to "),
    (re.compile(rf"(?<!\w)({_DAYS})\.?\s?[-–]\s?({_DAYS})(?!\w)"), r"\1. to \2."),
    (re.compile(rf"(?<![\w.:])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?{_HALF}?(?![\d:])"), _time),
    (re.compile(rf"(?<![\w.:])(1[0-2]|0?[1-9]){_HALF}"), _hour),
    (re.compile(r"(?<![\w.:])(\d+):(\d+)(?![\d:])"), lambda match: f"{match[1]} to {match[2]}"),
]
