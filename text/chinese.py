"""Chinese text as CosyVoice expects it: numbers in characters, no brackets, no stray spaces.

Numbers, dates and units are read by WeText's grammars, which come inside its package; a clause that they fail on
is left as typed.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

_log = logging.getLogger(__name__)

_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_LONG_RUN = re.compile(r"\d{12,}|(?<=[A-Za-z])\d{5,}|\d{5,}(?=[A-Za-z])|(?<=·)\d{4,}")
_DECIMAL_AFTER_NAME = re.compile(r"(?<=[A-Za-z] )(\d+)\.(\d+)(?![\d.])")
_TAIWAN_DOLLAR = re.compile(r"NT\$\s?([\d,.]*\d)\s?元?")
_CLAUSE = re.compile(r"[^，。！？；]{1,200}[，。！？；]*|[，。！？；]+")
_DOT = re.compile(r"(?<![0-9A-Za-z])\.|\.(?![0-9A-Za-z])")
_BRACKETS = re.compile("[（）()【】`]")
_LAST_COMMAS = re.compile("[，,、]+$")


def read_chinese(text: str) -> str:
    """Digits, dates, units and mathematical signs of a Chinese text in characters (WeText, `zh`)."""
    text = re.sub("~{2,}", "", _TAIWAN_DOLLAR.sub(r"新台币\1元", text))
    text = _LONG_RUN.sub(lambda match: match[0].translate(_DIGITS), text)
    text = _DECIMAL_AFTER_NAME.sub(lambda match: f"{match[1]}点{match[2].translate(_DIGITS)}", text)
    return "".join(_read_clause(match[0]) for match in _CLAUSE.finditer(text))


def tidy_chinese(text: str) -> str:
    """The clean-up of CosyVoice's front end: spaces, superscripts, full stops, dashes, brackets, last comma.

    A dot between letters or digits stays ("2.6", "example.cn"): it ends no sentence.
    """
    text = drop_spaces(text.replace("\n", ""))
    text = text.replace("²", "平方").replace("³", "立方")
    text = _DOT.sub("。", text).replace(" - ", "，")
    text = _BRACKETS.sub("", text).replace("——", " ")
    return _LAST_COMMAS.sub("。", text)


def drop_spaces(text: str) -> str:
    """Keeps a space only between two ASCII characters that are no spaces themselves."""
    return "".join(
        character
        for i, character in enumerate(text)
        if character != " " or (_is_word(text[i - 1 : i]) and _is_word(text[i + 1 : i + 2]))
    )


def warm_up() -> None:
    """Loads the grammars."""
    read_chinese("今天是3月9日。")


def _is_word(character: str) -> bool:
    return character.isascii() and character not in ("", " ")


def _read_clause(clause: str) -> str:
    if not re.search(r"[0-9%+=×÷<>≤≥±°$€£¥℃]", clause):
        return clause
    try:
        return str(_grammar().normalize(clause)).replace('\\"', '"')
    except Exception:  # a grammar without a path for this input; the text is spoken as it stands
        _log.warning("a clause of %d characters could not be normalised", len(clause))
        return clause


@lru_cache(maxsize=1)
def _grammar() -> Any:
    from wetext import Normalizer  # slow to import, so only when Chinese is spoken

    return Normalizer(lang="zh", operator="tn", remove_erhua=False)
