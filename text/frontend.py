"""The text front end: what a model folder declares decides how text becomes segments for its tokenizer.

A genuine CosyVoice folder gets normalised words (`text.word_frontend`); a folder that declares "phonemes" gets the
phonemes of its voice (`text.phoneme_frontend`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from text.errors import TextError
from text.literals import Literal
from text.normalise import Warning
from text.options import TextOptions
from text.preparation import MAX_INPUT_CHARS
from text.pronunciation import Capabilities

if TYPE_CHECKING:
    from models.config import ModelConfig

__all__ = ["MAX_INPUT_CHARS", "Analysis", "Segment", "TextFrontend", "Tokenizer", "Warning"]

_DEFAULT_MAX_WORDS = 16
_DEFAULT_OPTIONS = TextOptions()


class Tokenizer(Protocol):
    """What the front end needs of a model's tokenizer."""

    special_tokens: tuple[str, ...]

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class Segment:
    """One stretch of speech: `text` as a person would read it, `tokens_text` as the model's tokenizer gets it.

    language: a value of text.options.LANGUAGES, that of most of its letters.
    """

    text: str
    tokens_text: str
    language: str = "en"


@dataclass(frozen=True)
class Analysis:
    """What would be spoken. text: all segments as a person reads them; tokens: how many ids each segment has."""

    text: str
    segments: tuple[Segment, ...]
    tokens: tuple[int, ...]
    warnings: tuple[Warning, ...]


class TextFrontend(ABC):
    """Text → segments that a model speaks one after the other. Thread-safe; heavy parts load at first use."""

    capabilities: Capabilities = Capabilities()

    @classmethod
    def for_model(cls, config: ModelConfig, tokenizer: Tokenizer) -> TextFrontend:
        """The front end that the model folder declares. tokenizer: counts tokens and says which tags there are.

        Raises ModelError when the folder lacks the front end's own files.
        """
        from text.phoneme_frontend import PhonemeFrontend
        from text.phonemes import PhonemeInventory
        from text.word_frontend import WordFrontend

        if config.folder.frontend == "phonemes":
            inventory = PhonemeInventory.load(config.root)
            return PhonemeFrontend(inventory, config.folder.max_words or _DEFAULT_MAX_WORDS, tokenizer)
        return WordFrontend(tokenizer, katakana=config.version == 3)

    def segments(
        self, text: str, options: TextOptions = _DEFAULT_OPTIONS, literals: Sequence[Literal] = ()
    ) -> list[Segment]:
        """At least one segment. `text` refers to `literals` by the characters of `text.literals`.

        Raises TextError: input_empty, input_too_long, input_not_utf8, no_speakable_text, unsupported_language,
        unsupported_parameter (this model cannot honour an option), and those of `text.pronunciation`.
        """
        return self._spoken(text, options, literals)[0]

    def analyse(self, text: str, options: TextOptions = _DEFAULT_OPTIONS, literals: Sequence[Literal] = ()) -> Analysis:
        """What `segments` gives, with what was noticed on the way. Raises the same."""
        segments, warnings = self._spoken(text, options, literals)
        return Analysis(
            " ".join(segment.text for segment in segments),
            tuple(segments),
            tuple(self.count_tokens(segment.tokens_text) for segment in segments),
            tuple(warnings),
        )

    def _spoken(
        self, text: str, options: TextOptions, literals: Sequence[Literal]
    ) -> tuple[list[Segment], list[Warning]]:
        segments, warnings = self._segments(text, options, literals)
        if not segments:
            raise TextError("no_speakable_text", "The input has nothing that can be spoken.")
        return segments, warnings

    @abstractmethod
    def prompt_text(self, text: str) -> str:
        """A reference recording's transcript, normalised, in one string for the tokenizer; "" stays ""."""

    def portion(self, text: str, before: str, options: TextOptions = _DEFAULT_OPTIONS) -> str:
        """A portion of an arriving text (see `text.incremental`) for the tokenizer; "" where nothing is spoken.

        before: the text before it, which tells its language. Raises TextError as `segments`.
        """
        raise TextError("unsupported_parameter", "This voice reads a text when all of it is there.")

    @abstractmethod
    def warm_up(self) -> None:
        """Loads now what the first request would load."""

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """How many ids the model's tokenizer makes of `text`."""

    @abstractmethod
    def _segments(
        self, text: str, options: TextOptions, literals: Sequence[Literal]
    ) -> tuple[list[Segment], list[Warning]]: ...
