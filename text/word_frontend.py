"""The front end of the genuine models: normalised words in segments of 60 to 80 units, as they were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from text import chinese, japanese, split
from text.atoms import IS_WIDE
from text.clean import clean
from text.frontend import Segment, TextFrontend, Tokenizer
from text.literals import LITERAL, LITERAL_BASE, Literal, fill_spoken, fill_tokens
from text.normalise import Warning, normalise
from text.options import AUTO, TextOptions
from text.preparation import prepare
from text.pronunciation import Capabilities
from text.spans import Span, find_spans, main_language

_DEFAULT_OPTIONS = TextOptions()
_SHARED_SCRIPTS = ("en", "de", "es", "fr", "it", "ja")  # Latin letters, and characters that may be Chinese
_TIGHT = ("zh", "yue", "ja")
_OTHER_MARKS = split.ENGLISH_MARKS + "。？！；؟।"


class WordFrontend(TextFrontend):
    """Text in words. katakana: Japanese goes to the tokenizer in katakana, as CosyVoice 3 was trained."""

    def __init__(self, tokenizer: Tokenizer, *, katakana: bool = False) -> None:
        self._tokenizer = tokenizer
        self._katakana = katakana
        self._tags = frozenset(token for token in tokenizer.special_tokens if not token.startswith("<|"))
        self.capabilities = Capabilities(phones=frozenset(tag for tag in self._tags if tag[0] == "["))

    def warm_up(self) -> None:
        chinese.warm_up()

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def prompt_text(self, text: str) -> str:
        if not text.strip():
            return ""
        options = TextOptions()
        text, _, _ = prepare(text, options, (), self.capabilities)
        spans, _ = normalise(text, options, self._tags)
        return "".join(map(self._for_tokenizer, spans)).replace("\u00a0", " ").strip()

    def portion(self, text: str, before: str, options: TextOptions = _DEFAULT_OPTIONS) -> str:
        if not text.strip():
            return ""
        written, _, _ = prepare(text, options, (), self.capabilities)
        options = replace(options, language=_language(before + text, options.language))
        spans, _ = normalise(written, options, self._tags, inside=True)
        spoken = "".join(map(self._for_tokenizer, spans)).replace("\u00a0", " ").strip()
        before = before.rstrip()
        parted = text[0].isspace() and before and spoken and not (IS_WIDE.match(before[-1]) or IS_WIDE.match(spoken))
        return f" {spoken}" if parted else spoken

    def _segments(
        self, text: str, options: TextOptions, literals: Sequence[Literal]
    ) -> tuple[list[Segment], list[Warning]]:
        text, literals, warnings = prepare(text, options, literals, self.capabilities)
        spans, noticed = normalise(text, options, self._tags)
        warnings += noticed
        if self._katakana and not japanese.has_dictionary() and any(map(_in_kanji, spans)):
            message = "Japanese is left in kanji, which this model reads badly: install the extra “japanese”."
            warnings.append(Warning("katakana_unavailable", message))
        segments = []
        for piece in _pieces(spans, self._split(spans, literals)):
            written = "".join(span.text for span in piece).replace("\u00a0", " ")
            spoken = fill_spoken(written, literals)
            if not any(map(str.isalnum, spoken)):
                continue
            tokens = "".join(map(self._for_tokenizer, piece)).replace("\u00a0", " ")
            segments.append(Segment(spoken.strip(), fill_tokens(tokens, literals), main_language(piece)))
        return segments, warnings

    def _split(self, spans: list[Span], literals: Sequence[Literal]) -> list[str]:
        tight = main_language(spans) in _TIGHT
        return split.split_paragraph(
            "".join(span.text for span in spans).strip(),
            marks=split.CHINESE_MARKS if tight else _OTHER_MARKS,
            stop="。" if tight else ".",
            length=self._characters(literals) if tight else self._tokens(literals),
        )

    def _tokens(self, literals: Sequence[Literal]) -> split.Length:
        return lambda text: self.count_tokens(fill_tokens(text, literals))

    def _characters(self, literals: Sequence[Literal]) -> split.Length:
        """Characters of Chinese or Japanese, whose sounds are two tokens each where a literal spells them."""
        sizes = [max(len(word.spoken), self.count_tokens(word.tokens) // 2) for word in literals]
        return lambda text: len(text) + sum(sizes[ord(word) - LITERAL_BASE] - 1 for word in LITERAL.findall(text))

    def _for_tokenizer(self, span: Span) -> str:
        if not (self._katakana and _in_kanji(span) and japanese.has_dictionary()):
            return span.text
        return japanese.to_katakana(span.text)


def _language(text: str, wanted: str) -> str:
    """`wanted`, or, where that is to be found, the one that most of a text is in, if its letters leave that open."""
    if wanted != AUTO:
        return wanted
    found = main_language(find_spans(clean(text)))
    return found if found in _SHARED_SCRIPTS else AUTO


def _in_kanji(span: Span) -> bool:
    return span.language == "ja" and japanese.needs_dictionary(span.text)


def _pieces(spans: list[Span], texts: list[str]) -> list[list[Span]]:
    """The spans of each of `texts`, which joined are the spans' text, but for spaces before and a stop behind it."""
    whole = "".join(span.text for span in spans)
    ends = list(accumulate(len(span.text) for span in spans))
    place, start = 0, len(whole) - len(whole.lstrip())
    pieces = []
    for text in texts:
        piece: list[Span] = []
        done = 0
        while done < len(text):
            while place < len(spans) - 1 and ends[place] <= start:
                place += 1
            last = place == len(spans) - 1
            size = len(text) - done if last else min(len(text) - done, ends[place] - start)
            piece.append(Span(text[done : done + size], spans[place].language))
            done += size
            start += size
        pieces.append(piece)
    return pieces
