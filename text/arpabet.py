"""English sounds as ARPAbet, the phones of the CMU dictionary and of CosyVoice 3: reading and respelling them."""

from __future__ import annotations

import re
import unicodedata

from text.errors import TextError

_VOWEL_PHONES = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANT_PHONES = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
_VOWELS = frozenset(_VOWEL_PHONES.split())
_CONSONANTS = frozenset(_CONSONANT_PHONES.split())
_PHONE = re.compile(r"([A-Z]{1,2})([0-2]?)")

# IPA of English, broad: what differs within one phoneme of English is one phone here.
_IPA_PAIRS = (
    "tʃ:CH ʧ:CH dʒ:JH ʤ:JH aɪ:AY ai:AY aʊ:AW au:AW eɪ:EY ei:EY oʊ:OW əʊ:OW ou:OW ɔɪ:OY ɔi:OY ɜɹ:ER ɜr:ER əɹ:ER ər:ER "
    "ɝ:ER ɚ:ER ɜ:ER i:IY ɪ:IH ɨ:IH ᵻ:IH e:EH ɛ:EH æ:AE a:AA ɑ:AA ɒ:AA ɔ:AO o:OW ʊ:UH u:UW ʌ:AH ə:AH ɐ:AH b:B d:D ð:DH "
    "f:F ɡ:G g:G h:HH k:K l:L ɫ:L m:M n:N ŋ:NG p:P ɹ:R r:R s:S ʃ:SH t:T ɾ:T ʔ:T θ:TH v:V w:W ʍ:W j:Y z:Z ʒ:ZH"
)
_IPA = dict(pair.split(":") for pair in _IPA_PAIRS.split())
_STRESS = {"ˈ": "1", "'": "1", "ˌ": "2"}
_SYLLABIC = "\u0329"
_UNHEARD = re.compile("[\u0361\u035cːˑʰ.‿/\\[\\]\\s]")  # ties, length, aspiration, syllable breaks, delimiters
_IPA_SOUND = re.compile("|".join(sorted(_IPA, key=len, reverse=True)) + f"|[{''.join(_STRESS)}]|{_SYLLABIC}")

# The symbols of misaki, on which the embedded voice was trained; a vowel's stress mark stands right before it.
_MISAKI_PAIRS = (
    "AA:ɑ AE:æ AH:ʌ AO:ɔ AW:W AY:I EH:ɛ ER:ɜɹ EY:A IH:ɪ IY:i OW:O OY:Y UH:ʊ UW:u B:b CH:ʧ D:d DH:ð F:f G:ɡ HH:h JH:ʤ "
    "K:k L:l M:m N:n NG:ŋ P:p R:ɹ S:s SH:ʃ T:t TH:θ V:v W:w Y:j Z:z ZH:ʒ"
)
_MISAKI = {**dict(pair.split(":") for pair in _MISAKI_PAIRS.split()), "AH0": "ə", "ER0": "əɹ"}
_MISAKI_STRESS = {"1": "ˈ", "2": "ˌ"}

_SIBILANTS = ("S", "Z", "SH", "ZH", "CH", "JH")
_VOICELESS = ("P", "T", "K", "F", "TH")


def read_cmu(written: str) -> tuple[str, ...]:
    """ "hh ah0 l ow1" → ("HH", "AH0", "L", "OW1"). Raises TextError unknown_phone."""
    phones = tuple(written.upper().split())
    for phone in phones:
        match = _PHONE.fullmatch(phone)
        if not match or not (match[1] in _VOWELS or (match[1] in _CONSONANTS and not match[2])):
            raise TextError("unknown_phone", f"“{phone}” is no phone of the CMU dictionary.")
    return phones


def read_ipa(written: str) -> tuple[str, ...]:
    """ "həˈloʊ" → ("HH", "AH0", "L", "OW1"); the only vowel of an unmarked word is stressed.

    Raises TextError unknown_phone for a symbol of no English sound.
    """
    text = _UNHEARD.sub("", unicodedata.normalize("NFD", written))
    phones: list[str] = []
    stress, start = "0", 0
    while start < len(text):
        match = _IPA_SOUND.match(text, start)
        if match is None:
            raise TextError("unknown_phone", f"The IPA symbol “{text[start]}” is no sound of English.")
        start = match.end()
        if match[0] in _STRESS:
            stress = _STRESS[match[0]]
        elif match[0] == _SYLLABIC:
            phones.insert(max(len(phones) - 1, 0), "AH0")
        elif _IPA[match[0]] in _VOWELS:
            phones.append(_IPA[match[0]] + stress)
            stress = "0"
        else:
            phones.append(_IPA[match[0]])
    vowels = [i for i, phone in enumerate(phones) if phone[-1].isdigit()]
    if len(vowels) == 1 and not any(mark in text for mark in _STRESS):
        phones[vowels[0]] = phones[vowels[0]][:-1] + "1"
    return tuple(phones)


def with_s(phones: tuple[str, ...]) -> tuple[str, ...]:
    """The word with the possessive 's."""
    last = phones[-1]
    if last in _SIBILANTS:
        return (*phones, "IH0", "Z")
    return (*phones, "S" if last in _VOICELESS else "Z")


def misaki(phones: tuple[str, ...]) -> str:
    """("HH", "AH0", "L", "OW1") → "həlˈO"."""
    symbols = []
    for phone in phones:
        base, stress = (phone[:-1], phone[-1]) if phone[-1].isdigit() else (phone, "")
        symbols.append(_MISAKI_STRESS.get(stress, "") + _MISAKI.get(phone, _MISAKI[base]))
    return "".join(symbols)
