"""Formulas in words: simple LaTeX and the signs of arithmetic, in any language that is read."""

from __future__ import annotations

import re
from collections.abc import Callable

from text.literals import LITERAL
from text.symbol_words import FORMULA, GREEK, PHRASES, TIGHT

_SIGNS = {
    "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "neq": "≠", "ne": "≠",
    "lt": "<", "gt": ">", "approx": "≈", "sim": "≈", "times": "×", "cdot": "×", "ast": "×", "div": "÷", "pm": "±",
    "infty": "∞", "sum": "∑", "int": "∫", "to": "→", "rightarrow": "→", "Rightarrow": "→", "degree": "°", "circ": "°",
}  # fmt: skip
_GREEK_NAMES = {name: letter for letter, name in reversed(GREEK.items())}
_SILENT_COMMANDS = (
    "left right big Big bigl bigr displaystyle limits quad qquad text mathrm mathbf mathit operatorname boxed"
)
_SILENT = frozenset(_SILENT_COMMANDS.split())
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_ROOT = re.compile(r"\\sqrt\s*(?:\[([^\[\]]*)\])?\s*\{([^{}]*)\}")
_PLAIN_GROUP = re.compile(r"\\(?:text|mathrm|mathbf|mathit|operatorname|boxed)\s*\{([^{}]*)\}")
_LIMITS = re.compile(r"\\(sum|int)\s*_(?:\{([^{}]*)\}|(\w))\s*\^(?:\{([^{}]*)\}|(\w))")
_POWER = re.compile(r"\s*\^\s*(?:\{([^{}]*)\}|(-?\d+|\w|\*))")
_INDEX = re.compile(r"_(?:\{([^{}]*)\}|(\w))")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_PIECE = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]|[^\W\d_]|\S")
COMMANDS = frozenset([*_SIGNS, *_GREEK_NAMES, *_SILENT, "sqrt", "frac", "dfrac", "tfrac"])
"""The names that have a reading without braces, too."""
_DEEPEST = 8  # groups inside groups

# Marks between the steps: what is already words is kept in a list and shown as one private character.
_WORDS_BASE = 0x100000


def read_formula(written: str, language: str, read_number: Callable[[str], str]) -> str:
    """The words of a formula. read_number: digits with a decimal point → words."""
    return _Reader(language, read_number).read(_bare(written))


def _either(match: re.Match[str], group: int) -> str:
    """What stands in braces, perhaps nothing, or the group after it: one character without braces."""
    return match[group + 1] if match[group] is None else match[group]


def _bare(written: str) -> str:
    for start, end in (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$", "$")):
        if written.startswith(start) and written.endswith(end) and len(written) >= len(start) + len(end):
            return written[len(start) : -len(end)]
    return written


class _Reader:
    def __init__(self, language: str, read_number: Callable[[str], str]) -> None:
        self._language = language
        self._number = read_number
        self._signs = FORMULA[language]
        self._phrases = PHRASES[language]
        self._chinese = language in ("zh", "yue")
        self._done: list[str] = []

    def read(self, formula: str) -> str:
        for _ in range(_DEEPEST):  # innermost groups first
            before = formula
            formula = _PLAIN_GROUP.sub(lambda match: self._keep(match[1].strip()), formula)
            formula = _FRACTION.sub(self._fraction, formula)
            formula = _ROOT.sub(self._root, formula)
            formula = _LIMITS.sub(self._limits, formula)
            formula = _POWER.sub(self._power, formula)
            if formula == before:
                break
        formula = _INDEX.sub(r" \1\2", formula)
        return self._words(formula)

    def _keep(self, words: str) -> str:
        self._done.append(words)
        return chr(_WORDS_BASE + len(self._done) - 1)

    def _fraction(self, match: re.Match[str]) -> str:
        top, bottom = self._words(match[1]), self._words(match[2])
        if self._chinese or self._language == "ja":
            return self._keep(f"{bottom}{'分之' if self._chinese else '分の'}{top}")
        if self._language == "ko":
            return self._keep(f"{bottom} 분의 {top}")
        return self._keep(f"{top} {self._phrases['over']} {bottom}")

    def _root(self, match: re.Match[str]) -> str:
        return self._keep(self._join([self._signs["√"], self._words(match[2])]))

    def _limits(self, match: re.Match[str]) -> str:
        start, end = self._words(_either(match, 2)), self._words(_either(match, 4))
        sign = self._signs[_SIGNS[match[1]]]
        if self._language in TIGHT or self._language == "ko":
            words = (start, self._phrases["from"], end, self._phrases["till"])
            return self._keep(self._join(["从", start, "到", end, sign] if self._chinese else [*words, sign]))
        return self._keep(f"{sign} {self._phrases['from']} {start} {self._phrases['till']} {end},")

    def _power(self, match: re.Match[str]) -> str:
        exponent = _either(match, 1)
        if exponent in ("2", "3"):
            return self._keep(self._phrases["squared" if exponent == "2" else "cubed"])
        if exponent.strip() in ("\\circ", "∘"):
            return self._keep(self._signs["°"])
        words = self._words(exponent)
        if self._language in TIGHT or self._language == "ko":
            if self._chinese:
                return self._keep(f"的{words}次方")
            return self._keep(f"の{words}乗" if self._language == "ja" else f"의 {words}제곱")
        return self._keep(f"{self._phrases['power']} {words}")

    def _words(self, formula: str) -> str:
        formula = _COMMAND.sub(self._command, formula)
        return self._join([word for piece in _PIECE.findall(formula) if (word := self._piece(piece)) != ""])

    def _command(self, match: re.Match[str]) -> str:
        name = match[1]
        if name in _SIGNS:
            return _SIGNS[name]
        if name in _GREEK_NAMES:
            return _GREEK_NAMES[name]
        return " " if name in _SILENT else self._keep(name)

    def _piece(self, piece: str) -> str:
        if ord(piece[0]) >= _WORDS_BASE:
            return self._done[ord(piece) - _WORDS_BASE]
        if piece[0].isdigit() and piece[0].isascii():
            return self._number(piece)
        piece = {"-": "−", "*": "×", "/": "÷", "·": "×"}.get(piece, piece)
        if piece in GREEK:
            return GREEK[piece]
        if piece in self._signs:
            return self._signs[piece]
        if piece in ("²", "³"):
            return self._phrases["squared" if piece == "²" else "cubed"]
        return piece if piece.isalnum() or piece in "!," or LITERAL.match(piece) else ""

    def _join(self, words: list[str]) -> str:
        if self._language not in TIGHT:
            return " ".join(words)
        text = ""
        for word in words:
            text += (" " if text[-1:].isascii() and word[:1].isascii() and text and word else "") + word
        return text
