"""English number words: cardinals, ordinals, years, decimals, digit by digit.

In the forms that readings of dates, identifiers and amounts are put together from; sixty words need no library.
"""

from __future__ import annotations

import re

_ONES_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ONES = _ONES_WORDS.split()
_TENS_WORDS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = _TENS_WORDS.split()
_SCALE_WORDS = (
    "_ thousand million billion trillion quadrillion quintillion sextillion septillion octillion nonillion decillion"
)
_SCALES = _SCALE_WORDS.split()
_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_IN_NUMBERS = "|".join([*_ONES_WORDS.split(), *_TENS_WORDS.split()[2:], *_SCALE_WORDS.split()[1:], "hundred", "oh"])
_NUMBER_WORD = rf"(?:{_IN_NUMBERS})(?:-(?:{_IN_NUMBERS}))?"
_SPOKEN_NUMBER = re.compile(rf"\b{_NUMBER_WORD}(?: (?:point )?{_NUMBER_WORD})+\b(?: percent\b)?")
MAX_CARDINAL_DIGITS = 15  # longer runs are identifiers, nobody reads them as quadrillions


def _below_thousand(number: int, joiner: str) -> str:
    hundreds, rest = divmod(number, 100)
    words = []
    if hundreds:
        words += [_ONES[hundreds], "hundred"]
        if rest and joiner:
            words.append(joiner)
    if rest >= 20:
        words.append(_TENS[rest // 10] + (f"-{_ONES[rest % 10]}" if rest % 10 else ""))
    elif rest or not hundreds:
        words.append(_ONES[rest])
    return " ".join(words)


def cardinal(number: int, *, formal: bool = False) -> str:
    """2048 → "two thousand forty-eight"; formal: "two thousand and forty-eight", groups apart by commas.

    number: 0 <= number < 10**36. The formal reading is the one that CosyVoice's own front end feeds its models.
    """
    groups: list[tuple[int, int]] = []
    rest, scale = number, 0
    while rest:
        rest, group = divmod(rest, 1000)
        if group:
            groups.append((group, scale))
        scale += 1
    if not groups:
        return _ONES[0]
    joiner = "and" if formal else ""
    words = [
        _below_thousand(group, joiner) + (f" {_SCALES[scale]}" if scale else "") for group, scale in reversed(groups)
    ]
    if not formal:
        return " ".join(words)
    if len(words) > 1 and groups[0][1] == 0 and groups[0][0] < 100:
        return ", ".join(words[:-1]) + f" and {words[-1]}"
    return ", ".join(words)


def ordinal(number: int) -> str:
    """22 → "twenty-second", 100 → "one hundredth"."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[cut:]
    if last in _IRREGULAR_ORDINALS:
        last = _IRREGULAR_ORDINALS[last]
    else:
        last = (f"{last[:-1]}ie" if last.endswith("y") else last) + "th"
    return words[:cut] + last


def year(number: int) -> str:
    """1984 → "nineteen eighty-four", 1905 → "nineteen oh five", 2005 → "two thousand five"."""
    century, rest = divmod(number, 100)
    if not 11 <= century <= 99 or (century % 10 == 0 and rest < 10):
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def digits(run: str) -> str:
    """ "007" → "zero zero seven"; characters that are no digits are left out."""
    return " ".join(_ONES[int(digit)] for digit in run if digit in "0123456789")


def integer(run: str) -> str:
    """A run of digits with optional thousands commas, as said: "1,250", "007" and very long runs digit by digit."""
    run = run.replace(",", "")
    if (len(run) > 1 and run[0] == "0") or len(run) > MAX_CARDINAL_DIGITS:
        return digits(run)
    return cardinal(int(run))


def decimal(run: str) -> str:
    """ "3.14" → "three point one four", ".5" → "point five"."""
    whole, _, fraction = run.partition(".")
    words = integer(whole) if whole else ""
    return f"{words} point {digits(fraction)}".strip() if fraction else words


def bind_numbers(text: str) -> str:
    """No-break spaces inside spoken numbers, so that no segment ends in one."""
    return _SPOKEN_NUMBER.sub(lambda match: match[0].replace(" ", "\u00a0"), text)
