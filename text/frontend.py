"""The text front ends: what a model folder declares decides how text becomes segments for its tokenizer.

A genuine CosyVoice folder gets normalised words, as its own front end gives it; a folder that declares "phonemes"
gets the phonemes of its voice.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from text import chinese, languages, split
from text.clean import clean
from text.english import read_english
from text.english_numbers import cardinal, digits
from text.english_words import SYMBOLS
from text.errors import TextError
from text.phonemes import (
    MARKS,
    PhonemeInventory,
    Phonemizer,
    check_english_letters,
    cut_endless_words,
    plain_letters,
)

if TYPE_CHECKING:
    from models.config import ModelConfig

MAX_INPUT_CHARS = 20_000
_DEFAULT_MAX_WORDS = 16
# Written in user text on purpose: events and emphasis, and v3's phones ([AA0], [j], [ǐ]).
_TAG = re.compile(r"</?(?:strong|laughter)>|\[[A-Za-z_\u00c0-\u024f-]{1,20}[0-2]?\]")


class _Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class Segment:
    """One stretch of speech: `text` as a person would read it, `tokens_text` as the model's tokenizer gets it."""

    text: str
    tokens_text: str


class TextFrontend(ABC):
    """Text → segments that a model speaks one after the other. Thread-safe; heavy parts load at first use."""

    @classmethod
    def for_model(cls, config: ModelConfig, tokenizer: _Tokenizer) -> TextFrontend:
        """The front end that the model folder declares. tokenizer: only counts tokens here.

        Raises ModelError when the folder lacks the front end's own files.
        """
        if config.folder.frontend == "phonemes":
            return PhonemeFrontend(PhonemeInventory.load(config.root), config.folder.max_words or _DEFAULT_MAX_WORDS)
        return UpstreamFrontend(lambda text: len(tokenizer.encode(text)))

    def segments(self, text: str) -> list[Segment]:
        """At least one segment, or TextError: input_empty, input_too_long, input_not_utf8, no_speakable_text,
        unsupported_language."""
        segments = self._segments(_checked(text))
        if not segments:
            raise TextError("no_speakable_text", "The input has nothing that can be spoken.")
        return segments

    @abstractmethod
    def prompt_text(self, text: str) -> str:
        """A reference recording's transcript, normalised, in one string for the tokenizer; "" stays ""."""

    @abstractmethod
    def warm_up(self) -> None:
        """Loads now what the first request would load."""

    @abstractmethod
    def _segments(self, text: str) -> list[Segment]: ...


def _checked(text: str) -> str:
    if len(text) > MAX_INPUT_CHARS:
        raise TextError(
            "input_too_long", f"The input has {len(text):,} characters; at most {MAX_INPUT_CHARS:,} are spoken at once."
        )
    if not text.strip():
        raise TextError("input_empty", "The input is empty.")
    return clean(text)


class UpstreamFrontend(TextFrontend):
    """The front end of the genuine models: normalised words, segments of 60 to 80 units.

    normalizer: "wetext" reads Chinese through WeText and English through `text.english`; "none" is CosyVoice's own
    behaviour without a text normaliser (digit runs spelled in English, digits left alone in Chinese).
    """

    def __init__(self, count_tokens: Callable[[str], int], normalizer: str = "wetext") -> None:
        if normalizer not in ("wetext", "none"):
            raise ValueError(f"normalizer is 'wetext' or 'none', not {normalizer!r}")
        self._count_tokens = count_tokens
        self._plain = normalizer == "none"
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        with self._lock:
            chinese.warm_up()

    def prompt_text(self, text: str) -> str:
        return self.normalise(_checked(text)) if text.strip() else ""

    def _segments(self, text: str) -> list[Segment]:
        return [Segment(piece.strip(), piece) for piece in self.split(text)]

    def normalise(self, text: str) -> str:
        """The whole text as the tokenizer gets it; text that carries control tokens (`<|...|>`) is left alone."""
        if _has_control_tokens(text):
            return text
        text = text.strip()
        language = self._language(text)
        if language == "zh":
            return chinese.tidy_chinese(text if self._plain else self._by_spans(text, self._read_chinese))
        if language != "en":
            return text
        return _spell_digits(text) if self._plain else self._by_spans(text, read_english)

    def split(self, text: str) -> list[str]:
        """The normalised text in segments, those without anything to say left out."""
        if _has_control_tokens(text):
            return [text]
        normalised = self.normalise(text)
        language = self._language(text)
        cjk = language in ("zh", "ja")
        if language in ("en", "zh"):
            marks = split.CHINESE_MARKS if cjk else split.ENGLISH_MARKS
        else:
            marks = split.CHINESE_MARKS + "؟।"
        pieces = split.split_paragraph(
            normalised, marks=marks, stop="。" if cjk else ".", length=len if cjk else self._count_tokens
        )
        return [piece for piece in pieces if any(map(_speakable, piece))]

    def _language(self, text: str) -> str:
        if self._plain:
            return "zh" if languages.has_han(text) else "en"
        return languages.language_of(text)

    def _read_chinese(self, text: str) -> str:
        with self._lock:
            return chinese.read_chinese(text)

    @staticmethod
    def _by_spans(text: str, read: Callable[[str], str]) -> str:
        """Reads what stands between event tags; the tags themselves stay."""
        parts: list[str] = []
        start = 0
        for match in _TAG.finditer(text):
            parts += [_read_around(text[start : match.start()], read), match[0]]
            start = match.end()
        return "".join([*parts, _read_around(text[start:], read)])


class PhonemeFrontend(TextFrontend):
    """English for voices that were trained on the phonemes of utterances of at most `max_words` words."""

    def __init__(self, inventory: PhonemeInventory, max_words: int) -> None:
        self._inventory = inventory
        self._longest = max_words
        self._phonemize = Phonemizer()

    def warm_up(self) -> None:
        self._phonemize.warm_up()

    def prompt_text(self, text: str) -> str:
        if not text.strip():
            return ""
        normalised = self._normalise(_checked(text))
        short = split.count_words(normalised) <= self._longest
        utterances = [normalised] if short else split.split_words(normalised, self._longest)
        return self._inventory.fit(" ".join(map(self._phonemize, utterances)))

    def _segments(self, text: str) -> list[Segment]:
        segments = []
        for utterance in split.split_words(self._normalise(text), self._longest):
            phonemes = self._inventory.fit(self._phonemize(utterance))
            if not self._inventory.has_sound(phonemes):
                continue
            if phonemes[-1] not in MARKS:  # the phonemizer takes the dot of "six C." for an abbreviation's
                phonemes += utterance.rstrip("\"'")[-1]
            segments.append(Segment(utterance, self._inventory.fit(phonemes)))
        return segments

    def _normalise(self, text: str) -> str:
        text = _TAG.sub(" ", text)
        check_english_letters(languages.foreign_letter(text, allowed="".join(SYMBOLS)))
        return cut_endless_words(plain_letters(read_english(text)))


def _has_control_tokens(text: str) -> bool:
    return "<|" in text and "|>" in text


def _speakable(character: str) -> bool:
    """Anything but punctuation, symbols, spaces: a letter, a mark, a digit."""
    return character.isalnum()


def _spell_digits(text: str) -> str:
    """Every run of digits in formal English words, nothing else changed."""
    return re.sub(
        r"[0-9]+", lambda match: cardinal(int(match[0]), formal=True) if len(match[0]) < 37 else digits(match[0]), text
    )


def _read_around(text: str, read: Callable[[str], str]) -> str:
    """`read(text)` with the spaces at both ends kept, as they part words from tags."""
    if not text.strip():
        return text
    head, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return head + read(text) + tail
