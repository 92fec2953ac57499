"""The front end of voices that read phonemes: English in utterances as short as those they were trained on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from text import languages, split
from text.english_words import SYMBOLS
from text.entities import TAG
from text.errors import TextError
from text.frontend import Segment, TextFrontend, Tokenizer
from text.literals import LITERAL, LITERAL_BASE, Literal, fill_spoken, fill_tokens, placeholder
from text.normalise import Warning, read_english_text, unknown_tags
from text.options import AUTO, TextOptions
from text.phonemes import MARKS, PhonemeInventory, Phonemizer, check_english_letters, cut_endless_words, plain_letters
from text.preparation import prepare
from text.pronunciation import Capabilities

_TOUCHING_LITERALS = re.compile(f"{LITERAL.pattern}(?={LITERAL.pattern})")
_SOUNDS_PER_WORD = 6


class PhonemeFrontend(TextFrontend):
    """English for voices that were trained on the phonemes of utterances of at most `max_words` words."""

    def __init__(self, inventory: PhonemeInventory, max_words: int, tokenizer: Tokenizer) -> None:
        self._inventory = inventory
        self._longest = max_words
        self._phonemize = Phonemizer()
        self._tokenizer = tokenizer
        self._tags = frozenset(tokenizer.special_tokens)
        self.capabilities = Capabilities(phonemes=inventory.symbols)

    def warm_up(self) -> None:
        self._phonemize.warm_up()

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def prompt_text(self, text: str) -> str:
        if not text.strip():
            return ""
        options = TextOptions()
        text, _, _ = prepare(text, options, (), self.capabilities)
        normalised = self._normalise(text, options)
        short = split.count_words(normalised) <= self._longest
        utterances = [normalised] if short else split.split_words(normalised, self._longest)
        return self._inventory.fit(" ".join(map(self._phonemize, utterances)))

    def _segments(
        self, text: str, options: TextOptions, literals: Sequence[Literal]
    ) -> tuple[list[Segment], list[Warning]]:
        if options.language not in (AUTO, "en"):
            raise TextError("unsupported_language", f"This voice speaks English, not {options.language}.")
        if options.normalization == "off":
            raise TextError("unsupported_parameter", "This voice reads phonemes: its text is always normalised.")
        text, literals, warnings = prepare(text, options, literals, self.capabilities)
        warnings += unknown_tags(text, self._tags)
        segments = []
        for utterance in split.split_words(self._normalise(text, options), self._longest, _words(literals)):
            phonemes = self._phonemes(utterance, literals)
            if not self._inventory.has_sound(phonemes):
                continue
            if phonemes[-1] not in MARKS:  # the phonemizer takes the dot of "six C." for an abbreviation's
                phonemes += utterance.rstrip("\"'")[-1]
            if phonemes[-1] == ",":  # no utterance ended so in the training: the voice goes on with words of its own
                phonemes = phonemes[:-1] + "."
            segments.append(Segment(fill_spoken(utterance, literals), self._inventory.fit(phonemes)))
        return segments, warnings

    def _normalise(self, text: str, options: TextOptions) -> str:
        text = TAG.sub(lambda match: " " if match[0] in self._tags else match[0], text)
        check_english_letters(languages.foreign_letter(text, allowed="".join(SYMBOLS)))
        text = _TOUCHING_LITERALS.sub(r"\g<0> ", text)
        return cut_endless_words(plain_letters(read_english_text(text, options)))

    def _phonemes(self, utterance: str, literals: Sequence[Literal]) -> str:
        """A literal's tokens are phonemes already, or the words themselves where they are as written."""
        words = [
            literal.spoken if literal.tokens == literal.spoken else placeholder(i) for i, literal in enumerate(literals)
        ]
        utterance = LITERAL.sub(lambda match: words[ord(match[0]) - LITERAL_BASE], utterance)
        parts: list[str] = []
        done = 0
        for match in LITERAL.finditer(utterance):
            parts += [self._words(utterance[done : match.start()]), fill_tokens(match[0], literals)]
            done = match.end()
        parts.append(self._words(utterance[done:]))
        return self._inventory.fit(" ".join(filter(None, parts)))

    def _words(self, text: str) -> str:
        return self._phonemize(text) if text.strip() else ""


def _words(literals: Sequence[Literal]) -> split.Length:
    """Spoken words, where a literal of many sounds is as long as the words of as many."""
    sizes = [max(split.count_words(word.spoken), len(word.tokens) // _SOUNDS_PER_WORD) for word in literals]

    def size(text: str) -> int:
        return split.count_words(text) + sum(sizes[ord(word) - LITERAL_BASE] - 1 for word in LITERAL.findall(text))

    return size
