"""English words to the phonemes a voice was trained on.

The phonemes are those of hibari-tts (misaki's symbols); its lexicon, tagger and network for unknown words load
without its voice. A voice says in `phonemes.json` which symbols it knows.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from pathlib import Path
from typing import Any

from models.errors import ModelError
from text.errors import TextError

INVENTORY_FILE = "phonemes.json"
_STRESS = "ˈˌ"
_SILENCE = "_"
MARKS = ",.?!"
_LONGEST_WORD = 24  # letters; longer words are cut, the network for unknown words reads no further
_LONGEST_CHAIN = 5  # parts of "state-of-the-art"; the phonemizer's time grows with the cube of their number
# What stands in for a sound that English, or this voice, does not have.
_NEAREST_PAIRS = (
    "g:ɡ r:ɹ ɚ:əɹ ɝ:ɜɹ ʔ:t x:k ɣ:ɡ ç:h c:k q:k χ:k e:ɛ a:ɑ o:O ɒ:ɑ Q:O y:i ø:ɜ œ:ɜ ɨ:ɪ ɯ:u ɤ:ʌ ɕ:ʃ ʂ:ʃ S:s ʑ:ʒ ʁ:ɹ "
    "ɻ:ɹ ɽ:ɹ β:b ʋ:v ɸ:f ʝ:j ɲ:n ɳ:n ɴ:n ɰ:ɡ ʎ:l ɖ:d ʈ:t ɟ:ɡ ɥ:w ʦ:ts ʣ:dz ʨ:ʧ ꭧ:ʧ ʥ:ʤ"
)
_NEAREST = dict(pair.split(":") for pair in _NEAREST_PAIRS.split())


class Phonemizer:
    """English text → phonemes. Loading takes about a second and 110 MB; thread-safe."""

    def __init__(self) -> None:
        self._g2p: Any = None
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Loads lexicon, tagger and the network for unknown words."""
        self("Warm up the grxbl.")

    def __call__(self, text: str) -> str:
        """Phonemes of one utterance, misaki symbols, stress mark right before its vowel."""
        with self._lock:
            if self._g2p is None:
                from hibari.g2p import G2P  # its voice stays unloaded

                self._g2p = G2P()
            return str(self._g2p(_readable(text)))


class PhonemeInventory:
    """The symbols one voice knows, and how everything else is said with them."""

    def __init__(self, classes: list[str], alias: dict[str, str], vowels: list[str]) -> None:
        self._vowels = frozenset(vowels)
        self._known = frozenset("".join(classes)) - frozenset(_SILENCE + _STRESS)
        self._alias = alias

    @classmethod
    def load(cls, model_dir: str | Path) -> PhonemeInventory:
        """From a voice's `phonemes.json`. Raises ModelError: model_file_missing, model_config_invalid."""
        path = Path(model_dir) / INVENTORY_FILE
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls(table["classes"], table["alias"], table["vowels"])
        except FileNotFoundError:
            raise ModelError("model_file_missing", f"{path} is missing") from None
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError("model_config_invalid", f"{path} cannot be read: {error!r}") from error

    @property
    def symbols(self) -> frozenset[str]:
        """Everything `fit` takes as it is."""
        return self._known | frozenset(_STRESS) | frozenset(self._alias)

    def fit(self, phonemes: str) -> str:
        """The same sounds in symbols of the voice: near ones mapped, silent ones dropped, marks tidied.

        phonemes: one utterance. Marks inside it become commas, as voices are trained on single sentences.
        """
        symbols = "".join(map(self._symbol, phonemes))
        symbols = re.sub(rf"[{_STRESS}](?![{''.join(self._vowels)}])", "", symbols)
        symbols = re.sub(r"\s+", " ", symbols)
        symbols = re.sub(rf" +(?=[{MARKS}])", "", symbols)
        symbols = re.sub(rf"[{MARKS}]*([.?!])[{MARKS}]*", r"\1", symbols)
        symbols = re.sub(rf"[{MARKS}]+(?=.*[^{MARKS} ])", ",", symbols.strip())
        return re.sub(r",{2,}", ",", symbols).lstrip(MARKS + " ")

    def _symbol(self, symbol: str) -> str:
        if symbol in self._known or symbol in _STRESS:
            return symbol
        if symbol in self._alias:
            return self._alias[symbol]
        return "".join(near for near in _NEAREST.get(symbol, "") if near in self._known)

    def has_sound(self, phonemes: str) -> bool:
        """Whether anything but spaces and marks is left."""
        return any(symbol not in MARKS + _STRESS + " " for symbol in phonemes)


def _readable(text: str) -> str:
    """What the phonemizer reads best: no quotes, no shouting."""
    text = re.sub(r"[\"“”]|(?<![^\W_])'(?!(?:n|em|tis|twas|til|cause|bout)(?!\w))|'(?![^\W_])(?<!s')", " ", text)
    words = [word for word in re.findall(r"[^\W\d_]+", text) if len(word) > 1]
    if len(words) > 2 and all(word.isupper() for word in words):
        text = text.lower()
    return " ".join(text.split())


def cut_endless_words(text: str) -> str:
    """Words of more than 24 letters, and chains of more than 5 parts, in pieces that can be read."""
    text = re.sub(r"\S+", _cut_chain, text)
    return re.sub(rf"[^\W\d_]{{{_LONGEST_WORD + 1},}}", _cut_word, text)


def _cut_chain(match: re.Match[str]) -> str:
    if len(re.findall(r"\w+", match[0])) <= _LONGEST_CHAIN:
        return match[0]
    return re.sub(r"(?<=\w)[^\w\s]+(?=\w)", " ", match[0])


def _cut_word(match: re.Match[str]) -> str:
    parts = -(-len(match[0]) // _LONGEST_WORD)
    size = -(-len(match[0]) // parts)
    return " ".join(match[0][start : start + size] for start in range(0, len(match[0]), size))


def plain_letters(text: str) -> str:
    """Letters without the accents that English spelling does not use (ł, č, ő, …); é, ñ, ü and the like stay."""
    plain = []
    for character in text:
        if character <= "\u00ff" or not character.isalpha():
            plain.append(character)
            continue
        base = unicodedata.normalize("NFKD", character)[0]
        plain.append({"ł": "l", "Ł": "L", "đ": "d", "ı": "i", "œ": "oe", "Œ": "Oe"}.get(base, base))
    return "".join(plain)


def check_english_letters(foreign: str | None) -> None:
    """Raises TextError unsupported_language when a letter of another script was found."""
    if foreign is not None:
        raise TextError(
            "unsupported_language",
            f"This voice speaks English; it cannot read the character “{foreign}”.",
        )
