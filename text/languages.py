"""Which language words in Latin script are in: by the smallest among them."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Words that one of these languages uses all the time and English does not.
_SMALL_WORDS = {
    "de": "der die das und ist nicht ein eine mit auf für zu von dem den sich auch wie im um sie wir ich uhr "
    "sind kann wird haben aber oder noch nur dass sehr kostet bitte danke heute nach bei aus vom zur zum wenn",
    "fr": "le la les des et est une dans pour pas que qui sur avec au du ce sont nous vous je il elle "
    "ne c'est cette mais ou leur être fait bien comme par ils très deux merci bonjour",
    "es": "el la los las y es una en por para con que del se no está más su como pero lo "
    "muy este esta hay tiene cuando donde porque también hasta desde unos cuesta hola gracias",
    "it": "il lo la gli le e è una di del della delle dal con per che non sono nel alla si "
    "ma anche più questo questa hanno essere perché quando molto alle dai nella costa grazie ciao",
    "pt": "o os as e é uma em do da dos das com para que não por se mais como mas ao",
}
_ENGLISH_WORDS = (
    "the a an and of to in is it you that he she was for on are with as i his they be at this have from or had by "
    "not but what we can an your which their will each how if up out them then so some her would like him into has "
    "my me no do does did don't it's i'm there been who its now all were when one said please thank"
)
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_FOREIGN = {language: frozenset(words.split()) for language, words in _SMALL_WORDS.items()}
_LATIN = re.compile("[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\u0300-\u036f]")


def latin_language(words: Iterable[str]) -> str | None:
    """The language of words in Latin script by those among them that it uses all the time; None: not enough to tell."""
    words = [word.lower() for word in words]
    scores = {language: sum(word in known for word in words) for language, known in _FOREIGN.items()}
    best = max(scores, key=lambda language: scores[language])
    english = sum(word in _ENGLISH for word in words)
    sure = scores[best] > 1 or (scores[best] == 1 and not all(map(str.isascii, words)))
    if sure and scores[best] > english:
        return best
    return "en" if english else None


def foreign_letter(text: str, allowed: str = "") -> str | None:
    """The first letter that is neither Latin nor in `allowed`."""
    for character in text:
        if character.isalpha() and character not in allowed and not _LATIN.match(character):
            return character
    return None
