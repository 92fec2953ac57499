"""Pinyin as people write it (hǎo, hao3, nü3, lv4, lu:4) to the initials and toned finals of CosyVoice 3's tokenizer."""

from __future__ import annotations

import re
import unicodedata

from text.errors import TextError

_INITIALS = ("zh", "ch", "sh", *"bpmfdtnlgkhjqxrzcsyw")
_TONES = {"\u0304": 1, "\u0301": 2, "\u030c": 3, "\u0300": 4}
_MARKS = {tone: mark for mark, tone in _TONES.items()}
_PARTED = re.compile(r"[\s'’\-]+|(?<=[0-5])(?=[a-zü])")
_FINAL = re.compile("[aeiouüv]+(?:ng?|r)?")
_SYLLABLE = re.compile(r"([a-zü]+)([0-5]?)")


def pinyin_tokens(written: str, phones: frozenset[str]) -> str:
    """ "xíng zǒu" → "[x][íng][z][ǒu]".

    written: syllables apart by spaces, hyphens, apostrophes or their tone digits; no tone or 0 or 5 is the neutral one.
    phones: the tokens there are. Raises TextError unknown_phone.
    """
    text = unicodedata.normalize("NFC", written).lower().replace("u:", "ü").replace("v", "ü").strip(" '’-")
    return "".join(_tokens(syllable, phones) for syllable in _PARTED.split(text))


def _tokens(syllable: str, phones: frozenset[str]) -> str:
    base, tone = _bare(syllable)
    initial = next((initial for initial in _INITIALS if base.startswith(initial)), "")
    final = base[len(initial) :]
    if initial in ("n", "l") and final in ("ue", "üe"):
        final = "ve"  # as the tokenizer spells it
    elif initial in ("j", "q", "x", "y"):
        final = final.replace("ü", "u")
    tokens = [f"[{part}]" for part in (initial, _toned(final, tone)) if part]
    spelled = _FINAL.fullmatch(final) and ("ü" not in final or initial in ("n", "l"))
    if not spelled or not phones.issuperset(tokens):
        kind = f"tone {tone}" if tone else "the neutral tone"
        raise TextError("unknown_phone", f"The model has no tokens for the pinyin syllable “{syllable}” ({kind}).")
    return "".join(tokens)


def _bare(syllable: str) -> tuple[str, int]:
    """The letters without their tone, and the tone, 0 to 4. Raises TextError unknown_phone."""
    letters = unicodedata.normalize("NFD", syllable)
    marks = [_TONES[letter] for letter in letters if letter in _TONES]
    bare = unicodedata.normalize("NFC", "".join(letter for letter in letters if letter not in _TONES))
    match = _SYLLABLE.fullmatch(bare)
    if match is None or len(marks) + bool(match[2]) > 1:
        raise TextError(
            "unknown_phone", f"“{syllable}” is no pinyin syllable; write them apart, each with one tone: hǎo or hao3."
        )
    return match[1], marks[0] if marks else int(match[2] or 0) % 5


def _toned(final: str, tone: int) -> str:
    """The final with its tone mark where the spelling rules put it: on a, e, the o of "ou", else the last vowel."""
    if not tone:
        return final
    place = next((final.index(vowel) for vowel in ("a", "e", "ou") if vowel in final), None)
    if place is None:
        place = max((final.rfind(vowel) for vowel in "iouü"), default=-1)
    if place < 0:
        return final
    return unicodedata.normalize("NFC", final[: place + 1] + _MARKS[tone] + final[place + 1 :])
