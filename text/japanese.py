"""Japanese text in words, and in katakana for CosyVoice 3, which was trained on it instead of kanji.

Numbers are read by WeText's grammar; readings of kanji come from Janome's dictionary (extra "japanese").
"""

from __future__ import annotations

import importlib.util
import re
import threading
from functools import lru_cache
from typing import Any

from text import grammars
from text.symbol_words import FORMULA, digits

_TO_CONVERT = re.compile("[\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3005]")
_KATAKANA = re.compile("[\u30a1-\u30ff]+")
_ENDLESS = re.compile(r"\d{13,}|(?<=[A-Za-z])\d{5,}|\d{5,}(?=[A-Za-z])")
_SIGNS = re.compile("|".join(map(re.escape, FORMULA["ja"])))
_MARKS = re.compile(r"\s*([、。！？!?,.「」『』（）()・：；:;…]+)\s*")
_HIRAGANA = {code: code + 0x60 for code in range(0x3041, 0x3097)}
# Numbers change their sound before these, which the dictionary, reading word by word, does not know.
_SOUND_CHANGES = """
三百 サンビャク|六百 ロッピャク|八百 ハッピャク|三千 サンゼン|八千 ハッセン
一個 イッコ|六個 ロッコ|八個 ハッコ|十個 ジュッコ|一回 イッカイ|六回 ロッカイ|八回 ハッカイ|十回 ジュッカイ
一分 イップン|三分 サンプン|四分 ヨンプン|六分 ロップン|八分 ハップン|十分 ジュップン
一本 イッポン|三本 サンボン|六本 ロッポン|八本 ハッポン|十本 ジュッポン
一匹 イッピキ|三匹 サンビキ|六匹 ロッピキ|八匹 ハッピキ|十匹 ジュッピキ
一杯 イッパイ|三杯 サンバイ|六杯 ロッパイ|八杯 ハッパイ|十杯 ジュッパイ
一階 イッカイ|三階 サンガイ|六階 ロッカイ|八階 ハッカイ|十階 ジュッカイ|一歳 イッサイ|八歳 ハッサイ|十歳 ジュッサイ
一冊 イッサツ|八冊 ハッサツ|十冊 ジュッサツ|四時 ヨジ|七時 シチジ|九時 クジ|四月 シガツ|七月 シチガツ|九月 クガツ
四人 ヨニン|四円 ヨエン|四年 ヨネン
"""
_SOUNDS = dict(row.split() for row in _SOUND_CHANGES.replace("\n", "|").strip("|").split("|"))
# 十分な is no number of minutes, 四時十分に is.
_COUNTED = re.compile(rf"(?!(?<!時)十分[なにだで])({'|'.join(_SOUNDS)})")
_LOCK = threading.Lock()


def read_japanese(text: str) -> str:
    """Digits, dates, units and signs in kanji and kana. text: cleaned, one line. Thread-safe."""
    text = _ENDLESS.sub(lambda match: digits(match[0], "ja"), text)
    text = re.sub(r"(?<=\d)[〜～~](?=\d)", "から", text)
    text = grammars.read(text, "ja")
    text = re.sub(r"\d", lambda match: digits(match[0], "ja"), text)
    text = text.replace("²", "の二乗").replace("³", "の三乗")
    return re.sub(r"[_*^|\\`]+", " ", _SIGNS.sub(lambda match: FORMULA["ja"][match[0]], text))


def needs_dictionary(text: str) -> bool:
    """Whether anything in it has to be put into katakana."""
    return _TO_CONVERT.search(text) is not None


def has_dictionary() -> bool:
    """Whether the extra with the dictionary is installed."""
    return importlib.util.find_spec("janome") is not None


def to_katakana(text: str) -> str:
    """Words in katakana as they sound (は the particle is ワ), apart by spaces; what has no reading stays.

    text: without digits. Needs `has_dictionary()`. Thread-safe.
    """
    text = _COUNTED.sub(lambda match: _SOUNDS[match[1]], text)
    with _LOCK:
        words = [(token.surface, token.phonetic) for token in _dictionary().tokenize(text)]
    parts: list[str] = []
    foreign = False
    for surface, sound in words:
        if foreign and _KATAKANA.fullmatch(surface):  # the dictionary cuts "スーパーカー", which is one word
            parts[-1] += surface
            continue
        foreign = _KATAKANA.fullmatch(surface) is not None
        parts.append(surface.translate(_HIRAGANA) if foreign or sound == "*" else sound)
    return _MARKS.sub(r"\1", re.sub(r"\s+", " ", " ".join(parts))).strip()


@lru_cache(maxsize=1)
def _dictionary() -> Any:
    from janome.tokenizer import Tokenizer  # 50 MB of dictionary, so only when Japanese is spoken

    return Tokenizer()
