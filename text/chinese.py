"""Chinese text as CosyVoice expects it: numbers in characters, no brackets, no stray spaces.

Numbers, dates and units are read by WeText's grammars; what they have no rule for (Roman numerals, room and other
identifying numbers, powers, lone signs) is put into words around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from text import grammars
from text.literals import LITERAL
from text.symbol_words import FORMULA

_DIGITS = str.maketrans("0123456789", "零一二三四五六七八九")
_CALLED_DIGITS = str.maketrans("0123456789", "零幺二三四五六七八九")
_DOT = re.compile(r"(?<![0-9A-Za-z])\.|\.(?![0-9A-Za-z])")
_BRACKETS = re.compile("[（）()【】`]")
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_IDENTIFIED = "号码|微信号|QQ号?|单号|订单号|编号|验证码|密码|邮编|邮政编码|账号|帐号|卡号|尾号|学号|工号|车牌号|流水号"
UNITS = {
    "kWh": "千瓦时",
    "mAh": "毫安时",
    "kW": "千瓦",
    "W": "瓦",
    "V": "伏",
    "GHz": "吉赫兹",
    "MHz": "兆赫兹",
    "kHz": "千赫兹",
}
_SUPERSCRIPTS = str.maketrans("⁰¹⁴⁵⁶⁷⁸⁹", "01456789")


def _roman(match: re.Match[str]) -> str:
    values = [_ROMAN[letter] for letter in match[1]]
    return str(sum(-value if value < max(values[i:]) else value for i, value in enumerate(values)))


def _digit_by_digit(match: re.Match[str]) -> str:
    return match[0].translate(_DIGITS)


def _exponent(match: re.Match[str]) -> str:
    exponent = (match[1] or match[2]).translate(_SUPERSCRIPTS)
    return {"2": "的平方", "3": "的立方"}.get(exponent, f"的{exponent}次方")


# Before the grammar reads the numbers.
_BEFORE: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile("~{2,}"), ""),
    (re.compile("。{2,}"), "……"),
    (re.compile(r"(?:^|(?<=[。！？：；]))\s*[-•]\s+"), ""),
    (re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,6}(?![\d,])"), lambda match: match[0].replace(",", "")),
    (re.compile(r"(?<=第)([IVXLC]{1,7})(?=[章节節部卷篇回届期册世幕类条])"), _roman),
    (re.compile(r"#(?=([^#\s]{1,30})#)(\1)#"), r"\1"),
    # money
    (re.compile(r"(?<![A-Za-z])NT\$\s?([\d.]*\d)\s?元?"), r"新台币\1元"),
    (re.compile(r"(?<![A-Za-z])HK\$\s?([\d.]*\d)\s?元?"), r"\1港元"),
    (re.compile(r"(?<![A-Za-z])US\$\s?([\d.]*\d)"), r"$\1"),
    (
        re.compile(r"([$€£])\s?(\d[\d.]*)\s?([bmtr]+illion|[KMB])(?![A-Za-z])"),
        lambda m: m[2] + {"K": "千", "M": "百万"}.get(m[3], m[3]) + FORMULA["zh"][m[1]],
    ),
    (re.compile(r"(?<=[¥￥$€£])(\d+)\.00(?!\d)"), r"\1"),
    # identifiers
    (re.compile(r"(?<!\d)\d{3,4}(?=[室房](?!间))|(?<=房间)\d{3,4}(?!\d)"), lambda m: m[0].translate(_CALLED_DIGITS)),
    (re.compile(rf"((?:{_IDENTIFIED})(?:是|为|：|:)? ?)(\d{{3,}})(?![\d.])"), lambda m: m[1] + m[2].translate(_DIGITS)),
    (
        re.compile(r"\d{12,}|(?<=[A-Za-z])\d{3,}|\d{5,}(?=[A-Za-z])|\d{3,4}(?=p(?![A-Za-z]))|(?<=·)\d{4,}"),
        _digit_by_digit,
    ),
    (re.compile(r"(?<=[A-Z])·(?=[零一二三四五六七八九A-Z\d])"), ""),
    (re.compile(r"(?<=[A-Za-z] )(\d+)\.(\d+)(?![\d.])"), lambda m: f"{m[1]}点{m[2].translate(_DIGITS)}"),
    (re.compile(r"(?<![A-Za-z])[Nn]o\.\s?(?=\d)"), "编号"),
    (re.compile(r"(?<![\d.])(\d+)(?:st|nd|rd|th)(?![A-Za-z])"), r"第\1"),
    # amounts and formulas
    (re.compile(rf"(?<=\d)\s?({'|'.join(UNITS)})(?![A-Za-z])"), lambda m: UNITS[m[1]]),
    (re.compile(r"(?<=[A-Za-z])-(?=\d)"), " "),
    (re.compile(r"%\s?[-–]\s?(?=\d)"), "%到"),
    (re.compile(r"(?<=\d)\+(?=[\u4e00-\u9fff])"), "多"),
    (re.compile(r"(?<=[\d)）])\s*÷\s*(?=[\d(（])"), "除以"),
    (re.compile(r"(?<=\d)\s?\*\s?(?=\d)"), "乘"),
    (re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?!\w)"), r"\1乘10的\2次方"),
    (re.compile(r"(?<=[\dA-Za-z)）])\^\{?(-?\d{1,3}|[a-z])\}?|(?<=\d)([⁰¹⁴-⁹]+)"), _exponent),
    (re.compile(r"(?<=[A-Za-z)）])²"), "的平方"),
    (re.compile(r"(?<=[A-Za-z)）])³"), "的立方"),
    (re.compile(r"[παβ]"), lambda m: {"π": "派", "α": "阿尔法", "β": "贝塔"}[m[0]]),
]
_SIGNS = {sign: word for sign, word in FORMULA["zh"].items() if sign not in "%°¥€$£"}
_SIGN = re.compile(rf" ?({'|'.join(map(re.escape, _SIGNS))}) ?")
_SILENT = re.compile(r"[_*|\\^\[\]{}]+")


def read_chinese(text: str) -> str:
    """Digits, dates, units and mathematical signs of a Chinese text in characters. Thread-safe."""
    for pattern, spoken in _BEFORE:
        text = pattern.sub(spoken, text)
    text = grammars.read(text, "zh")
    text = _SIGN.sub(lambda match: _SIGNS[match[1]], _SILENT.sub(" ", text))
    return re.sub(r"\d+", _digit_by_digit, text)


def tidy_chinese(text: str, *, ends: bool = True) -> str:
    """The clean-up of CosyVoice's front end: spaces, superscripts, full stops, dashes, brackets, last comma.

    ends: whether nothing follows, so that a last comma is a full stop. A dot between letters or digits stays ("2.6",
    "example.cn"): it ends no sentence.
    """
    text = drop_spaces(text.replace("\n", ""))
    text = text.replace("²", "平方").replace("³", "立方")
    text = _DOT.sub("。", text).replace(" - ", "，")
    text = _BRACKETS.sub("", text).replace("——", " ")
    bare = text.rstrip("，,、")
    return f"{bare}。" if ends and bare != text else text


def drop_spaces(text: str) -> str:
    """Keeps a space only between two ASCII characters, or finished words, that are no spaces themselves."""
    return "".join(
        character
        for i, character in enumerate(text)
        if character != " " or (_is_word(text[i - 1 : i]) and _is_word(text[i + 1 : i + 2]))
    )


def warm_up() -> None:
    """Loads the grammars."""
    read_chinese("今天是3月9日。")


def _is_word(character: str) -> bool:
    return character not in ("", " ") and (character.isascii() or LITERAL.match(character) is not None)
