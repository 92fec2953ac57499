"""Korean text in words: numbers in Sino-Korean, or in native words before the counters that want them."""

from __future__ import annotations

import re

from text.symbol_words import FORMULA, PHRASES, digits

_SINO = ("", *"일이삼사오육칠팔구")
_PLACES = ("", "십", "백", "천")
_SCALES = ("", "만", "억", "조", "경")
_NATIVE_ONES = ("", "한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉")
_NATIVE_TENS = ("", "열", "스물", "서른", "마흔", "쉰", "예순", "일흔", "여든", "아흔")
_MAX_DIGITS = 15
_NATIVE_WANTED = (
    "시간 시 개 명 살 번째 번 마리 권 잔 병 대 장 벌 켤레 송이 그루 채 척 가지 군데 사람 달 배 곡 줄 통 끼 쌍"
)
_NATIVE_COUNTERS = _NATIVE_WANTED.split()
UNITS = {
    "km/h": "시속 킬로미터", "m/s": "초속 미터", "km²": "제곱킬로미터", "m²": "제곱미터", "㎡": "제곱미터",
    "m³": "세제곱미터", "km": "킬로미터", "cm": "센티미터", "mm": "밀리미터", "m": "미터", "kg": "킬로그램",
    "mg": "밀리그램", "g": "그램", "ml": "밀리리터", "mL": "밀리리터", "l": "리터", "L": "리터", "kWh": "킬로와트시",
    "kW": "킬로와트", "W": "와트", "V": "볼트", "Hz": "헤르츠", "GHz": "기가헤르츠", "MHz": "메가헤르츠",
    "KB": "킬로바이트", "MB": "메가바이트", "GB": "기가바이트", "TB": "테라바이트", "ms": "밀리초", "°C": "도",
    "℃": "도", "°": "도", "%": "퍼센트",
}  # fmt: skip
_CURRENCIES = {"₩": "원", "US$": "달러", "$": "달러", "€": "유로", "£": "파운드", "¥": "엔"}
_MONTHS = {6: "유월", 10: "시월"}
_NUMBER = r"\d{1,3}(?:,\d{3}){1,6}(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?"
_BEFORE = r"(?<![A-Za-z\d.,])"


def _alternatives(words: list[str] | dict[str, str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_ENDLESS = re.compile(rf"\d{{{_MAX_DIGITS + 1},}}")
_ISO_DATE = re.compile(r"(?<![\d.-])(\d{4})[-./] ?(\d{1,2})[-./] ?(\d{1,2})(?![\d-])\.?")
_CLOCK = re.compile(r"(?<![\d:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:])")
_MONTH = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])월")
_MONEY = re.compile(rf"({_alternatives(_CURRENCIES)}) ?({_NUMBER})(?: ?([만억조]))?")
_RANGE = re.compile(rf"{_BEFORE}({_NUMBER}) ?[~∼〜–-] ?(?=(?:{_NUMBER}))")
_COUNTED = re.compile(rf"{_BEFORE}(\d{{1,2}})( ?)({_alternatives(_NATIVE_COUNTERS)})(?!간|계|대)")
_MEASURED = re.compile(rf"{_BEFORE}([-−]?)({_NUMBER}) ?({_alternatives(UNITS)})(?![A-Za-z²³])")
_FRACTION = re.compile(r"(?<![\d/])(\d{1,3})/(\d{1,3})(?![\d/])")
_NEGATIVE = re.compile(r"(?<![\w.)])[-−](?=\d)")
_LONE = re.compile(_NUMBER)
_SIGNS = re.compile("|".join(map(re.escape, FORMULA["ko"])))


def read_korean(text: str) -> str:
    """Hangul and punctuation in place of digits and signs. text: cleaned, one line."""
    text = _ENDLESS.sub(lambda match: digits(match[0], "ko"), text)
    text = _ISO_DATE.sub(_date, text)
    text = _CLOCK.sub(_clock, text)
    text = _MONTH.sub(lambda match: _MONTHS.get(int(match[1]), f"{sino(int(match[1]))}월"), text)
    text = _MONEY.sub(lambda match: f"{read_number(match[2])}{match[3] or ''} {_CURRENCIES[match[1]]}", text)
    text = _RANGE.sub(lambda match: f"{match[1]}에서 ", text)
    text = _MEASURED.sub(_measured, text)
    text = _COUNTED.sub(lambda match: f"{native(int(match[1]))}{match[2] or ' '}{match[3]}", text)
    text = _FRACTION.sub(lambda match: f"{sino(int(match[2]))}분의 {sino(int(match[1]))}", text)
    text = _NEGATIVE.sub("마이너스 ", text)
    text = _LONE.sub(lambda match: read_number(match[0]), text)
    text = text.replace("²", f" {PHRASES['ko']['squared']}").replace("³", f" {PHRASES['ko']['cubed']}")
    text = _SIGNS.sub(lambda match: f" {FORMULA['ko'][match[0]]} ", text)
    return re.sub(r" +([,.!?])", r"\1", re.sub(" {2,}", " ", re.sub(r"[_*^|\\`~]+", " ", text)))


def sino(number: int) -> str:
    """1250 → 천이백오십; a leading 일 is left out before 십, 백, 천 and 만."""
    if number == 0:
        return "영"
    words, scale = "", 0
    while number:
        number, group = divmod(number, 10_000)
        spoken = "".join(
            ("" if digit == 1 and place else _SINO[digit]) + _PLACES[place]
            for place, digit in ((place, group // 10**place % 10) for place in (3, 2, 1, 0))
            if digit
        )
        if group:
            words = ("" if group == 1 and scale == 1 else spoken) + _SCALES[scale] + words
        scale += 1
    return words


def native(number: int) -> str:
    """1 to 99 as they stand before a counter: 21 → 스물한, 20 → 스무."""
    if number == 20:
        return "스무"
    return _NATIVE_TENS[number // 10] + _NATIVE_ONES[number % 10] if number else "영"


def read_number(run: str) -> str:
    """ "1,250.5" → 천이백오십점오; "007" and endless runs digit by digit."""
    whole, _, fraction = run.replace(",", "").partition(".")
    plain = len(whole) > _MAX_DIGITS or (len(whole) > 1 and whole[0] == "0")
    words = digits(whole, "ko") if plain else sino(int(whole))
    return f"{words}점{digits(fraction, 'ko').replace('공', '영')}" if fraction else words


def _date(match: re.Match[str]) -> str:
    month, day = int(match[2]), int(match[3])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{sino(int(match[1]))}년 {month}월 {sino(day)}일"


def _clock(match: re.Match[str]) -> str:
    hour = native(int(match[1])) if int(match[1]) <= 12 else sino(int(match[1]))
    minutes = f" {sino(int(match[2]))}분" if match[2] != "00" else ""
    return f"{hour} 시{minutes}" + (f" {sino(int(match[3]))}초" if match[3] else "")


def _measured(match: re.Match[str]) -> str:
    name = UNITS[match[3]]
    sign = ("영하 " if name == "도" else "마이너스 ") if match[1] else ""
    prefix, _, unit = name.rpartition(" ")
    return f"{prefix} {sign}{read_number(match[2])} {unit}".strip()
