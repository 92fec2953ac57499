"""Web and e-mail addresses and telephone numbers, in words of any language that is read."""

from __future__ import annotations

import re

from text import english_numbers
from text.english_words import TOP_LEVEL_DOMAINS_AS_WORDS
from text.symbol_words import ADDRESS, PHRASES, TIGHT, digits

_SPELLED_URL_LENGTH = 60  # of a longer address only the host is read: nobody can use the rest by ear
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_TAIL = ".,;:!?'\")"


def read_email(written: str, language: str, mode: str) -> str:
    """An e-mail address as TextOptions.email says."""
    if mode == "skip":
        return ""
    if mode == "name":
        return PHRASES[language]["email"]
    name, _, host = written.rpartition("@")
    return _join([*_spell(name, language), ADDRESS[language]["@"], *_host(host, language)], language)


def read_url(written: str, language: str, mode: str) -> str:
    """A web address as TextOptions.url says; marks that end the sentence around it stay."""
    address = written.rstrip(_TAIL)
    tail = written[len(address) :]
    if mode == "skip":
        return tail
    if mode == "name":
        return PHRASES[language]["link"] + tail
    address = re.sub(r"^(?:https?|ftp)://", "", address, flags=re.IGNORECASE).rstrip("/")
    host, slash, path = address.partition("/")
    if not slash:
        host, slash, path = _split_at_query(host)
    words = _host(host, language)
    if path and mode == "read" and len(address) <= _SPELLED_URL_LENGTH:
        words += _spell(slash + path, language)
    return _join(words, language) + tail


def read_phone(written: str, language: str, mode: str) -> str:
    """A telephone number as TextOptions.phone says: digit by digit, a pause between its groups."""
    if mode == "skip":
        return ""
    groups = re.findall(r"\d+", written)
    if language in ("zh", "yue"):
        spoken = [digits(group, language).replace("一", "幺") for group in groups]
        return (PHRASES[language]["plus"] if written[0] == "+" else "") + "，".join(spoken)
    if language == "en":
        spoken = [
            english_numbers.cardinal(int(group)) if re.fullmatch(r"[1-9]00", group) else digits(group, language)
            for group in groups
        ]
    else:
        spoken = [digits(group, language) for group in groups]
    plus = f"{PHRASES[language]['plus']} " if written[0] == "+" else ""
    return plus + ("、" if language == "ja" else ", ").join(spoken)


def _split_at_query(host: str) -> tuple[str, str, str]:
    match = re.search(r"[?#]", host)
    return (host[: match.start()], match[0], host[match.end() :]) if match else (host, "", "")


def _spell(address: str, language: str) -> list[str]:
    words = []
    for piece in _PIECE.findall(address):
        if piece.isdigit():
            short = language == "en" and len(piece) < 3
            words.append(english_numbers.integer(piece) if short else digits(piece, language))
        elif piece.isalpha():
            words.append(piece)
        elif piece in ADDRESS[language]:
            words.append(ADDRESS[language][piece])
    return words


def _host(host: str, language: str) -> list[str]:
    """example.co.uk → "example dot C O dot U K": short endings are letters, common ones words."""
    host, colon, port = re.sub(r"^www\.", "", host, flags=re.IGNORECASE).partition(":")
    name, *endings = host.split(".")
    words = _spell(name, language)
    for ending in endings:
        letters = len(ending) <= 3 and ending.isalpha() and ending.lower() not in TOP_LEVEL_DOMAINS_AS_WORDS
        words += [ADDRESS[language]["."], *(ending.upper() if letters else _spell(ending, language))]
    return words + _spell(colon + port, language)


def _join(words: list[str], language: str) -> str:
    """One unbreakable reading; Chinese and Japanese words stand without spaces, Latin ones among them apart."""
    if language not in TIGHT:
        return "\u00a0".join(words)
    text = ""
    for word in words:
        text += ("\u00a0" if text[-1:].isascii() and word[0].isascii() and text else "") + word
    return text
