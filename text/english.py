"""Reads English text out: numbers, dates, money, times, units, abbreviations, symbols, addresses → words.

`read_english` is an ordered list of rules, each a pattern and what a person would say instead. Early rules take the
long forms (an address, a date, a phone number), so that the late ones meet only bare numbers and lone symbols.
Every pattern starts at a boundary, so a long run of one character costs linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from text import english_numbers as numbers
from text.english_addresses import ADDRESS_RULES, IDENTIFIER_RULES, Rule, phone_rules
from text.english_amounts import AMOUNT_RULES
from text.english_dates import DATE_RULES
from text.english_words import (
    ABBREVIATIONS,
    FUNCTION_WORDS,
    SYMBOLS,
    TITLES,
    YEAR_CUES,
)


def read_english(text: str, phone: str = "digits") -> str:
    """Words and punctuation (letters, apostrophes, hyphens, `, . ? ! : ; "`) in place of everything else.

    text: cleaned, one line. phone: as TextOptions.phone. The result may be empty; it holds no digit.
    """
    rules = _rules(phone)
    text = " ".join(_applied(rules, stretch) for stretch in _stretches(text))
    text = "".join(c for c in text if c.isalpha() or not c.isnumeric())
    return _applied(_TIDY_RULES, text).lstrip(" ,;:.!?").rstrip(" ,;:")


def _applied(rules: Iterable[Rule], text: str) -> str:
    for pattern, spoken in rules:
        text = pattern.sub(spoken, text)
    return text


@lru_cache
def _rules(phone: str) -> list[Rule]:
    return [*ADDRESS_RULES, *phone_rules(phone), *IDENTIFIER_RULES, *_RULES]


def _stretches(text: str) -> Iterator[str]:
    """The text in stretches of at most _LONGEST_STRETCH characters, cut where a reading rarely spans the cut.

    Some rules look ahead or back; on a bounded stretch even hostile input costs bounded time.
    """
    start = 0
    while len(text) - start > _LONGEST_STRETCH:
        window = text[start : start + _LONGEST_STRETCH]
        ends = [match.end() for match in _GOOD_CUT.finditer(window)]
        cut = ends[-1] if ends else window.rfind(" ") + 1 or _LONGEST_STRETCH
        yield window[:cut]
        start += cut
    yield text[start:]


_LONGEST_STRETCH = 500
_GOOD_CUT = re.compile(r"(?:[!?;]|[a-z]{4}\.) ")


# -- markup and typography -------------------------------------------------------------------------------------


_MARKUP_RULES: list[Rule] = [
    (re.compile(r"</?[A-Za-z][A-Za-z0-9-]{0,20}(?:\s+[\w-]{1,30}=\"[^\"<>]{0,200}\")*\s*/?>"), " "),
    (re.compile(r"[‘’ʼ´](?=\w)|(?<=\w)[‘’ʼ´]"), "'"),
    (re.compile(r"[“”„«»＂]"), '"'),
    (re.compile(r"[，、､]"), ", "),
    (re.compile(r"[。｡]"), ". "),
    (re.compile(r"！"), "! "),
    (re.compile(r"？"), "? "),
    (re.compile(r"：(?!\d)"), ": "),
    (re.compile(r"；"), "; "),
    (re.compile(r"（"), " ("),
    (re.compile(r"）"), ") "),
    (re.compile(r"\*\*|__|~~|`+|(?<!\S)#{1,6}(?=\s)|(?<!\S)>(?=\s)"), " "),
    (re.compile(r"(?<!\S)\*(?=\S)|(?<=\S)\*(?!\S)"), ""),
    (re.compile(r"\.{2,}(?=\s*[\w\"'])|…+(?=\s*[\w\"'])"), ", "),
    (re.compile(r"\.{2,}|…+"), "."),
    (re.compile(r"(?<!\S)[-–—•·]+(?=\s)|--+|—|―"), ", "),
    (re.compile(r"(?<=[^\W\d])–(?=[^\W\d])"), ", "),
    (re.compile(r"–"), "-"),
    (re.compile(r"!*\?[?!]+|\?{2,}"), "?"),
    (re.compile(r"!{2,}"), "!"),
]

# Before the numbers they belong to are read.
_PREFIX_RULES: list[Rule] = [
    (re.compile(r"(?<!\w)[Nn]os?\.\s?(?=\d)|(?<![\w&])#\s?(?=\d)"), "number "),
    (re.compile(r"(?<!\w)pp\.\s?(?=\d)"), "pages "),
    (re.compile(r"(?<!\w)p\.\s?(?=\d)"), "page "),
    (
        re.compile(r"(?i:(?<=call )|(?<=dial )|(?<=text ))(?:\d{3}|\d{5,6})(?![\w-]|[.,]\d)"),
        lambda match: numbers.digits(match[0]),
    ),
]

# -- abbreviations ---------------------------------------------------------------------------------------------


def _starts_sentence(rest: str) -> bool:
    """Whether what follows an abbreviation's dot is a new sentence (or nothing at all)."""
    return not rest.strip() or re.match(r"\s+[\"'(]?(?:[A-Z][a-z']|I\s|A\s)", rest) is not None


def _abbreviation(match: re.Match[str]) -> str:
    dot = "." if _starts_sentence(match.string[match.end() : match.end() + 8]) else ""
    return ABBREVIATIONS[match[1]] + dot


def _letters(match: re.Match[str]) -> str:
    """U.S. → US, Ph.D. → PhD, a.m. → AM."""
    name = match[0].replace(".", "")
    dot = "." if _starts_sentence(match.string[match.end() : match.end() + 8]) else ""
    return (name.upper() if name.lower() in ("am", "pm") else name) + dot


def _street_or(name: str) -> Callable[[re.Match[str]], str]:
    """ "Baker St." is a street, "St. Mary" a saint; "Elm Dr." a drive, "Dr. Lee" a doctor."""
    street = {"Saint": "Street", "Doctor": "Drive"}[name]

    def spoken(match: re.Match[str]) -> str:
        before = match.string[: match.start()].rsplit(None, 1)[-1:] or [""]
        after = match.string[match.end() : match.end() + 8]
        named = re.match(r"\s+[A-Z]", after) is not None
        follows_name = re.fullmatch(r"[A-Z][\w'-]*|\d+(?:st|nd|rd|th)", before[0]) is not None
        if not follows_name or (named and before[0] in ("And", "The", "By", "To", "For", "At", "In")):
            return name
        if named and name == "Doctor":
            return name
        return street + ("." if _starts_sentence(after) else "")

    return spoken


def _alternatives(table: dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(table, key=len, reverse=True))


_STARTERS = r"(?!(?:The|It|Then|This|That|We|He|She|They|You|But|And|If|In|At|So|When|There|What|How|Who|My|No)\b)"
_ABBREVIATION_RULES: list[Rule] = [
    (re.compile(r"(?<!\w)e\.\s?g\.,?", re.I), "for example"),
    (re.compile(r"(?<!\w)i\.\s?e\.,?", re.I), "that is"),
    (re.compile(r"(?<!\w)(?:vs|v)\.(?=\s)|(?<!\w)vs(?!\w)"), "versus"),
    (re.compile(r"(?<!\w)w/o(?!\w)"), "without"),
    (re.compile(r"(?<!\w)w/(?=\s?\w)"), "with "),
    (re.compile(r"(?<!\w)St\.|(?<!\w)St(?=\s[A-Z])"), _street_or("Saint")),
    (re.compile(r"(?<!\w)Dr\.|(?<!\w)Dr(?=\s[A-Z])"), _street_or("Doctor")),
    (re.compile(rf"(?<!\w)({_alternatives(TITLES)})\.?(?=\s[A-Z])"), lambda match: TITLES[match[1]]),
    (re.compile(rf"(?<![\w'])({_alternatives(ABBREVIATIONS)})\.(?!\w)"), _abbreviation),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]\.){2,}(?!\w)|(?<![\w.])Ph\.\s?D\.?(?!\w)"), _letters),
    (re.compile(rf"(?<![\w.'])([A-Z])\.(?= {_STARTERS}[A-Z][a-z.])"), r"\1"),
    (re.compile(r"(?<![\w'])([A-Z][a-z]{0,3}\d{0,3})\+\+"), r"\1 plus plus"),
    (re.compile(r"(?<!\w)([CF])#"), r"\1 sharp"),
    (re.compile(r"(?<!\w)and/or(?!\w)"), "and or"),
    (re.compile(r"(?<!\w)(he|she|his|her|him|yes|him)/(she|he|her|his|no)(?!\w)", re.I), r"\1 or \2"),
]

# -- identifiers and bare numbers ------------------------------------------------------------------------------


def _part_number(run: str) -> str:
    """Digits inside a name: B12 → twelve, A320 → three twenty, PS5 → five, 4096 digit by digit."""
    if run[0] == "0" or len(run) > 4:
        return numbers.digits(run)
    if len(run) == 4:
        return numbers.year(int(run)) if run[:2] in ("19", "20") else numbers.digits(run)
    if len(run) == 3 and run[1:] != "00":
        rest = int(run[1:])
        return f"{numbers.cardinal(int(run[0]))} {'oh ' if rest < 10 else ''}{numbers.cardinal(rest)}"
    return numbers.cardinal(int(run))


def _identifier(match: re.Match[str]) -> str:
    """A word of letters and digits: MP3, x86_64, 3D, 9f8e7d6c, COVID-19."""
    words: list[str] = []
    for piece in re.split(r"[_-]", match[0]):
        runs = re.findall(r"\d+|[^\W\d_]+", piece)
        if len(runs) > 3:  # a hash or a serial number
            words += [numbers.digits(c) if c.isdecimal() else c.upper() for c in piece]
        else:
            words += [_part_number(run) if run[0].isdecimal() else run for run in runs]
    return " ".join(words)


def _ordinal(match: re.Match[str]) -> str:
    run = match[1].replace(",", "")
    return numbers.ordinal(int(run)) if len(run) <= numbers.MAX_CARDINAL_DIGITS else numbers.digits(run)


def _bare_number(match: re.Match[str]) -> str:
    run, before, after = match[0], match.string[: match.start()], match.string[match.end() :]
    if re.fullmatch(r"1[1-9]\d\d|20\d\d", run) and _is_year(run, before, after):
        return numbers.year(int(run))
    if re.fullmatch(r"\d{5}", run) and re.search(r"(?:[zZ]ip|[cC]ode|PIN|ID|\b[A-Z]{2}),? $", before[-12:]):
        return numbers.digits(run)
    return numbers.decimal(run)


def _is_year(run: str, before: str, after: str) -> bool:
    previous = re.search(r"([A-Za-z]+)['(]*,? *\(?$", before[-20:])
    following = re.match(r" ([A-Za-z]+)", after[:24])
    if following and following[1].lower() in ("bc", "bce", "ad", "ce"):
        return True
    if previous and previous[1].lower() in YEAR_CUES and (previous[1].lower() != "the" or run >= "1900"):
        return not (following and following[1].endswith("s") and following[1].lower() not in FUNCTION_WORDS)
    if run < "1900" or following is None:
        return run >= "1500"
    return following[1].lower() in FUNCTION_WORDS


_NUMBER_RULES: list[Rule] = [
    (re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(?:st|nd|rd|th)(?!\w)", re.I), _ordinal),
    (
        re.compile(r"(?<![\w.])(?=[\w-]*\d)(?=[\d_]*[^\W\d_])\w+(?:-\w*\d\w*)*(?![\w-])|(?<![\w.])[^\W\d_]+-\d+\w*"),
        _identifier,
    ),
    (re.compile(r"(?<![\w.)])[-−](?=\.?\d)"), "minus "),
    (re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\w)\.\d+"), _bare_number),
]

# -- lone symbols and tidy punctuation -------------------------------------------------------------------------


def _symbol(match: re.Match[str]) -> str:
    return f" {SYMBOLS[match[0]]} "


_SYMBOL_RULES: list[Rule] = [
    (re.compile(r"(?<=[a-z])\.(?=[A-Z])"), ". "),
    (re.compile(r"(?<=[^\W_])\.(?=[^\W_])"), " dot "),
    (re.compile(r"<-{1,3}>|[-=]{1,3}>"), " to "),
    (re.compile(r"~+(?=\s?\w)"), " about "),
    (re.compile(r"#(?=\w)"), " hashtag "),
    (re.compile("|".join(re.escape(symbol) for symbol in SYMBOLS)), _symbol),
    (re.compile(r"[()\[\]{}|]+(?= ?[.,;:!?])"), ""),
    (re.compile(r"[()\[\]{}|]+"), " , "),
    (re.compile(r"[^\w\s.,;:!?'\"\ue000-\uf8ff\U000f0000-\U000ffffd-]|_"), " "),
]

# Over the ends of stretches, too.
_TIDY_RULES: list[Rule] = [
    (re.compile(r"(?<![^\W_])-+|-+(?![^\W_])"), " "),
    (re.compile(r"\s+"), " "),
    (re.compile(r" +(?=[,.;:!?])"), ""),
    (re.compile(r"[,;:]+(?=[,;:.!?])"), ""),
    (re.compile(r"([.!?])[,;:.]+"), r"\1"),
    (re.compile(r"([,;:!?])(?=[^\W\d_])"), r"\1 "),
]

_RULES: list[Rule] = [
    *_MARKUP_RULES,
    *DATE_RULES,
    *_PREFIX_RULES,
    *AMOUNT_RULES,
    *_ABBREVIATION_RULES,
    *_NUMBER_RULES,
    *_SYMBOL_RULES,
]
