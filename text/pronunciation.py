"""How words are to be said, as a client wishes: entries of a request or a dictionary, applied to a text.

An entry's sounds become the model's own: tokens of CosyVoice 3's tokenizer, phonemes of a voice that reads phonemes.
CosyVoice 2 knows words only; an entry may bring `replace` beside its sounds for such a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from text.arpabet import misaki, read_cmu, read_ipa, with_s
from text.clean import clean
from text.entities import TAG
from text.errors import TextError
from text.literals import MAX_LITERALS, Literal, placeholder
from text.pinyin import pinyin_tokens

MAX_PRONUNCIATIONS = 5_000
MAX_WORD, MAX_SOUNDS, MAX_REPLACEMENT = 64, 200, 500  # characters
ALPHABETS = ("pinyin", "cmu", "ipa")

_UNSPACED = re.compile("[\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")  # scripts that part no words
_CONTRACTED_NOT = re.compile(r"['’]t(?![^\W_])", re.IGNORECASE)
_POSSESSIVE = re.compile(r"['’]s(?![^\W_])", re.IGNORECASE)


@dataclass(frozen=True)
class Capabilities:
    """What sounds a loaded model can be told.

    phones: the tokens in brackets of its tokenizer: events, and on CosyVoice 3 sounds ("[HH]", "[ǎo]"). phonemes: the
    symbols of a voice that reads phonemes, none for a model that reads words.
    """

    phones: frozenset[str] = frozenset()
    phonemes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pronunciation:
    """How one word or phrase is said: `text` is what is looked for, one of the others says how it sounds.

    pinyin: "chóng qìng" or "chong2 qing4"; cmu: "T AH0 M EY1 T OW2"; ipa: "təˈmeɪtoʊ", English; replace: other words,
    on any model. `replace` beside sounds is for models that cannot be told sounds.
    Raises TextError invalid_pronunciation.
    """

    text: str
    pinyin: str | None = None
    cmu: str | None = None
    ipa: str | None = None
    replace: str | None = None

    def __post_init__(self) -> None:
        sounds = [getattr(self, alphabet) for alphabet in ALPHABETS if getattr(self, alphabet) is not None]
        if len(sounds) > 1 or not (sounds or self.replace is not None):
            raise _invalid("A pronunciation needs one of pinyin, cmu, ipa, or replace.")
        for name, value, longest in (
            ("text", self.text, MAX_WORD),
            *(("pinyin, cmu or ipa", value, MAX_SOUNDS) for value in sounds),
            ("replace", self.replace, MAX_REPLACEMENT),
        ):
            if value is not None and not (len(value) <= longest and any(map(str.isalnum, clean(value)))):
                raise _invalid(
                    f"{name} of a pronunciation must hold something to say, in at most {longest} characters."
                )


class Lexicon(tuple[Pronunciation, ...]):
    """Pronunciations for many texts: thousands of entries are hashed once, not for each text that looks them up."""

    _hash: int | None = None

    def __new__(cls, entries: Iterable[Pronunciation]) -> Lexicon:
        return entries if isinstance(entries, cls) else super().__new__(cls, entries)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


def literal(spoken: str, alphabet: str, sounds: str, capabilities: Capabilities, possessive: bool = False) -> Literal:
    """The word `spoken` said as `sounds` in one of ALPHABETS; possessive: with 's behind it.

    Raises TextError: unknown_phone, unsupported_pronunciation, invalid_pronunciation.
    """
    if max(len(spoken), len(sounds)) > MAX_SOUNDS:
        raise _invalid(f"A word with sounds of its own has at most {MAX_SOUNDS} characters, and so have its sounds.")
    if alphabet == "pinyin":
        if "[zh]" not in capabilities.phones:
            raise _unsupported(alphabet)
        return Literal(spoken, pinyin_tokens(sounds, capabilities.phones))
    if not (capabilities.phonemes or "[ZH]" in capabilities.phones):
        raise _unsupported(alphabet)
    phones = read_cmu(sounds) if alphabet == "cmu" else read_ipa(sounds)
    if not phones:
        raise TextError("unknown_phone", f"“{sounds}” holds no sound.")
    if possessive:
        phones = with_s(phones)
    if capabilities.phonemes:
        tokens = misaki(phones)
        unknown = [symbol for symbol in tokens if symbol not in capabilities.phonemes]
    else:
        tokens = "".join(f"[{phone}]" for phone in phones)
        unknown = [phone for phone in phones if f"[{phone}]" not in capabilities.phones]
    if unknown:
        raise TextError("unknown_phone", f"The model has no token for the sound “{unknown[0]}”.")
    return Literal(spoken, tokens)


def apply(
    text: str,
    pronunciations: Sequence[Pronunciation],
    capabilities: Capabilities,
    literals: Sequence[Literal] = (),
) -> tuple[str, tuple[Literal, ...]]:
    """The text with every entry's word replaced, and the literals it then refers to.

    text: cleaned; it may refer to `literals`, which come first in the result. Words are found whole (Chinese,
    Japanese and Korean ones anywhere), in any case, the longest first; of entries for one word the first counts. Event
    tags are left alone. Time grows with the text and the entries, not with their product.
    Raises TextError: invalid_pronunciation, unknown_phone, unsupported_pronunciation, whether the word occurs or not.
    """
    if not pronunciations:
        return text, tuple(literals)
    if len(pronunciations) > MAX_PRONUNCIATIONS:
        raise _invalid(f"There are {len(pronunciations):,} pronunciations; at most {MAX_PRONUNCIATIONS:,} are applied.")
    entries = _entries(Lexicon(pronunciations), capabilities)
    used = list(literals)
    places = {known: place for place, known in enumerate(used)}
    parts: list[str] = []
    done = 0
    for start, end, said in entries.found(text):
        parts.append(text[done:start])
        done = end
        if isinstance(said, str):
            parts.append(said)
            continue
        if said not in places:
            places[said] = len(used)
            used.append(said)
        parts.append(placeholder(places[said]))
    if len(used) > MAX_LITERALS:
        raise _invalid(
            f"{len(used):,} different words have a pronunciation of their own; at most {MAX_LITERALS:,} may."
        )
    return "".join([*parts, text[done:]]), tuple(used)


@lru_cache(maxsize=4)
def _entries(pronunciations: Lexicon, capabilities: Capabilities) -> _Entries:
    """Kept, as every passage of a marked-up text, and every piece of one that arrives, has the same."""
    return _Entries(pronunciations, capabilities)


class _Entries:
    """Pronunciations by word."""

    def __init__(self, pronunciations: Sequence[Pronunciation], capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._entries: dict[str, Pronunciation | str] = {}  # str: the words that are said instead
        for entry in pronunciations:
            said = _said(entry, entry.text, capabilities, possessive=False)  # refused now if ever
            self._entries.setdefault(_folded(clean(entry.text)), said if isinstance(said, str) else entry)
        lengths: dict[str, set[int]] = {}
        for word in self._entries:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(all_lengths, reverse=True) for first, all_lengths in lengths.items()}
        self._first = re.compile(f"{TAG.pattern}|[{re.escape(''.join(lengths))}]")

    def found(self, text: str) -> Iterator[tuple[int, int, str | Literal]]:
        """(start, end, what is said there) of every word, left to right."""
        folded = _folded(text)
        place = 0
        while match := self._first.search(folded, place):
            start, place = match.span()
            if self._is_tag(text[start:place]):
                continue
            place = start + 1
            if _inside_word(text, start):
                continue
            for length in self._lengths.get(folded[start], ()):
                entry = self._entries.get(folded[start : start + length])
                if entry is None or _inside_word(text, start + length):
                    continue
                place = start + length
                if isinstance(entry, str):
                    yield start, place, entry
                    break
                possessive = _has_sounds_of_english(entry) and _POSSESSIVE.match(text, place)
                place = possessive.end() if possessive else place
                yield start, place, _said(entry, text[start:place], self._capabilities, bool(possessive))
                break

    def _is_tag(self, text: str) -> bool:
        return len(text) > 1 and (text[0] == "<" or text in self._capabilities.phones)


def _said(entry: Pronunciation, spoken: str, capabilities: Capabilities, possessive: bool) -> str | Literal:
    """What stands for `spoken`, an occurrence of the entry's word. Raises TextError."""
    alphabet, sounds = _sounds(entry)
    if sounds is None:
        return clean(entry.replace or "")
    try:
        return literal(spoken, alphabet, sounds, capabilities, possessive)
    except TextError as error:
        if error.code == "unsupported_pronunciation" and entry.replace is not None:
            return clean(entry.replace)
        raise


def _sounds(entry: Pronunciation) -> tuple[str, str | None]:
    return next(
        ((alphabet, sounds) for alphabet in ALPHABETS if (sounds := getattr(entry, alphabet)) is not None), ("", None)
    )


def _has_sounds_of_english(entry: Pronunciation) -> bool:
    return entry.cmu is not None or entry.ipa is not None


def _folded(text: str) -> str:
    """In lower case, each character in its place."""
    return "".join(lower if len(lower := character.lower()) == 1 else character for character in text)


def _inside_word(text: str, place: int) -> bool:
    """Whether a word goes on across `place`: letters or digits on both sides, or the t of "can't" behind it."""
    if not 0 < place < len(text):
        return False
    return all(map(_is_spaced, text[place - 1 : place + 1])) or _CONTRACTED_NOT.match(text, place) is not None


def _is_spaced(character: str) -> bool:
    return character.isalnum() and not _UNSPACED.match(character)


def _invalid(message: str) -> TextError:
    return TextError("invalid_pronunciation", message)


def _unsupported(alphabet: str) -> TextError:
    return TextError(
        "unsupported_pronunciation",
        f"The loaded model cannot be told sounds in {alphabet}; replace the word by others.",
    )
