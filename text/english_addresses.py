"""English readings of what identifies: web and e-mail addresses, phone and card numbers, versions."""

from __future__ import annotations

import re
from collections.abc import Callable

from text import addresses
from text import english_numbers as numbers


def _email(match: re.Match[str]) -> str:
    return addresses.read_email(match[0], "en", "read")


def _url(match: re.Match[str]) -> str:
    return addresses.read_url(match[0], "en", "read")


def _groups(match: re.Match[str]) -> str:
    return addresses.read_phone(match[0], "en", "digits")


def _version(match: re.Match[str]) -> str:
    prefix = "version " if match[1] else ""
    parts = match[2].split(".")
    joiner = " dot " if len(parts) == 4 and all(int(part[:4]) < 256 for part in parts) else " point "
    suffix = f" {match[3]}" if match[3] else ""
    return prefix + joiner.join(numbers.integer(part) for part in parts) + suffix


_HOST = r"(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,12}"
_ENDINGS = r"com|org|net|edu|gov|io|ai|dev|app|info|biz|co|uk|de|fr|cn|jp|us|ca|au|eu|me|tv|ly"

Rule = tuple[re.Pattern[str], "str | Callable[[re.Match[str]], str]"]

ADDRESS_RULES: list[Rule] = [
    (re.compile(r"\d{16,}"), lambda match: numbers.digits(match[0])),
    (re.compile(rf"(?<![\w.+-])([\w.+-]{{1,64}})@({_HOST})(?![\w-])"), _email),
    (re.compile(r"(?<!\w)(?:https?|ftp)://[^\s<>\"]+|(?<![\w.])www\.[^\s<>\"]+", re.I), _url),
    (re.compile(rf"(?<![\w.@-])(?:[A-Za-z0-9-]{{2,63}}\.){{1,4}}(?:{_ENDINGS})(?:/[^\s<>\"]*)?(?![\w-])"), _url),
]
IDENTIFIER_RULES: list[Rule] = [
    (re.compile(r"(?<![\w.-])\d{4}(?:[ -]\d{4}){2,4}(?![\w-])|(?<![\w.-])\d{3}-\d{2}-\d{4}(?![\w-])"), _groups),
    (re.compile(r"(?<![\w.])([vV]\.? ?)(\d+(?:\.\d+)*)(?:-([A-Za-z]+\d*))?(?![\w])"), _version),
    (re.compile(r"(?<![\w.])(?i:(?<=version )|(?<=python ))()(\d+(?:\.\d+)+)()(?![\w])"), _version),
    (re.compile(r"(?<![\w.,])()(?!\d\d?\.\d\d?\.\d{4}(?!\d))(\d+(?:\.\d+){2,})(?:-([A-Za-z]+\d*))?(?![\w])"), _version),
]
_PHONES = [
    re.compile(r"(?<![\w.+-])(?:\+?\d{1,3}[-. ])?(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])"),
    re.compile(r"(?<![\w.-])\d{3}-\d{4}(?![\w-])"),
    re.compile(r"(?<![\w.])\+\d{1,3}(?:[ -]\(?\d{1,4}\)?){2,5}(?![\w-])"),
]


def phone_rules(mode: str) -> list[Rule]:
    """As TextOptions.phone says; "number": none, for the rules of numbers to read them."""
    if mode == "number":
        return []
    return [(pattern, lambda match: addresses.read_phone(match[0], "en", mode)) for pattern in _PHONES]
