"""Japanese, Korean, German, Spanish, French, Italian, Russian: everyday amounts as a person would read them."""

# ruff: noqa: E501 (what is written and how it is read stand on one line)

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text.addresses import read_email, read_phone, read_url
from text.chinese import read_chinese
from text.european import read_european
from text.formulas import read_formula
from text.japanese import read_japanese, to_katakana
from text.korean import native, read_korean, sino
from text.markdown import strip_markdown

EUROPEAN = [
    ("de", "Der 3. Stock, 1 km, 1 Stunde.", "Der dritte Stock, ein Kilometer, eine Stunde."),
    ("de", "z. B. 5-10 % oder -5 °C", "zum Beispiel fünf bis zehn Prozent oder minus fünf Grad Celsius"),
    ("de", "1.250 Leute, 3,14, 1984", "eintausendzweihundertfünfzig Leute, drei Komma eins vier, neunzehnhundertvierundachtzig"),
    ("de", "am 1. Mai 2020, 18.30 Uhr, 1:00 Uhr", "am ersten Mai zweitausendzwanzig, achtzehn Uhr dreißig, ein Uhr"),
    ("de", "B12, 3+4=7, 2³, 1/2, ½, 5 m²", "B zwölf, drei plus vier gleich sieben, zwei hoch drei, eins durch zwei, null Komma fünf, fünf Quadratmeter"),
    ("de", "bzw. usw. Danach", "beziehungsweise und so weiter. Danach"),
    ("es", "21 km, 1 h, 1ª, Sr. López", "veintiún kilómetros, una hora, primera, señor López"),
    ("es", "24/12/2026, 1 de mayo de 2020", "veinticuatro de diciembre de dos mil veintiséis, uno de mayo de dos mil veinte"),
    ("es", "12,50 €, 18:30, $5", "doce euros con cincuenta, dieciocho treinta, cinco dólares"),
    ("fr", "1er mai 2020, 2 h 10 min, 1 h", "premier mai deux mille vingt, deux heures dix minutes, une heure"),
    ("fr", "12,50 €, la 3e fois, M. Dupont", "douze euros cinquante, la troisième fois, monsieur Dupont"),
    ("it", "1 euro, 1 ora, 1º maggio 2020, 3ª", "un euro, una ora, primo maggio duemilaventi, terza"),
    ("it", "alle 8.05, 2.500 persone", "alle otto e cinque, duemilacinquecento persone"),
    ("ru", "В 2026 г. 1 мин, 5 минут, 22 км", "В две тысячи двадцать шестом году одна минута, пять минут, двадцать два километра"),
    ("ru", "2-й, 3-го, 21 %, 49,90 ₽", "второй, третьего, двадцать один процент, сорок девять рублей девяносто"),
    ("ru", "8:05, 24.12.2026, и т. д. Потом", "восемь ноль пять, двадцать четвёртого декабря две тысячи двадцать шестого года, и так далее. Потом"),
]  # fmt: skip
KOREAN = {
    "10시 30분, 14:05, 12시": "열 시 삼십분, 십사 시 오분, 열두 시",
    "2026년 6월 3일, 2026-10-09": "이천이십육년 유월 삼일, 이천이십육년 시월 구일",
    "사과 3개, 20살, 100명, 3시간, 21번": "사과 세 개, 스무 살, 백명, 세 시간, 스물한 번",
    "5-10%, -5°C, 3.14, 60km/h, $5": "오에서 십 퍼센트, 영하 오 도, 삼점일사, 시속 육십 킬로미터, 오 달러",
    "1,250만 원, 10,000, 1/2": "천이백오십만 원, 만, 이분의 일",
}
JAPANESE = {
    "3.14、50%、5km、-5度": "三点一四、五十パーセント、五キロメートル、マイナス五度",
    "2026年3月9日10:30": "二千二十六年三月九日十時三十分",
    "5〜6人、x²": "五から六人、xの二乗",
}
SOUNDS = {
    "四時十分に三人と会う": "ヨジジュップン ニ サン ニン ト アウ",
    "十分な時間": "ジューブン ナ ジカン",
    "過去は六百円へ": "カコ ワ ロッピャク エン エ",
    "スーパーカー を見る": "スーパーカー ヲ ミル",
}


@pytest.mark.parametrize(("language", "written", "spoken"), EUROPEAN)
def test_european(language: str, written: str, spoken: str) -> None:
    assert read_european(written, language).replace("\u00a0", " ") == spoken


@pytest.mark.parametrize("written", KOREAN)
def test_korean(written: str) -> None:
    assert read_korean(written) == KOREAN[written]


def test_korean_numbers() -> None:
    assert [sino(n) for n in (0, 10, 11, 100, 10_000, 110_000, 100_001_234)] == [
        "영", "십", "십일", "백", "만", "십일만", "일억천이백삼십사",
    ]  # fmt: skip
    assert [native(n) for n in (1, 11, 20, 21, 99)] == ["한", "열한", "스무", "스물한", "아흔아홉"]


@pytest.mark.parametrize("written", JAPANESE)
def test_japanese(written: str) -> None:
    assert read_japanese(written) == JAPANESE[written]


@pytest.mark.parametrize("written", SOUNDS)
def test_katakana(written: str) -> None:
    pytest.importorskip("janome", reason="the extra japanese is not installed")
    assert to_katakana(written) == SOUNDS[written]


FORMULAS = [
    ("en", r"$E = mc^2$", "E equals m c squared"),
    ("en", r"\(x_1^{n+1}\ge\frac{\sqrt{2}}{3}\)", "x 1 to the power of n plus 1 greater than or equal to square root of 2 over 3"),
    ("en", r"\alpha\to\infty, \text{for all} x", "alpha to infinity , for all x"),
    ("zh", r"$$\frac{a}{b}\le\sqrt{x}$$", "b分之a小于等于根号x"),
    ("zh", r"$x^n$", "x的n次方"),
    ("zh", r"$\sum_{i=1}^n x_i$", "从i等于1到n求和x i"),
    ("en", r"$\sum_{i=1}^n x_i$", "the sum of from i equals 1 to n, x i"),
    ("de", r"$x^3\cdot 2$", "x hoch drei mal 2"),
    ("ko", r"\frac{a}{b}", "b 분의 a"),
    ("ja", r"\frac{a}{b}", "b分のa"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "written", "spoken"), FORMULAS)
def test_formula(language: str, written: str, spoken: str) -> None:
    assert read_formula(written, language, str) == spoken


def test_addresses_and_telephone_numbers() -> None:
    assert read_url("https://example.co.uk/x-1.", "de", "read").replace("\u00a0", " ") == (
        "example Punkt C O Punkt U K Schrägstrich x Bindestrich eins."
    )
    assert read_url("http://a.org/" + "x" * 80, "fr", "read").replace("\u00a0", " ") == "a point org"
    assert read_url("a.com:8080?q", "en", "read").replace("\u00a0", " ") == (
        "a dot com colon eight zero eight zero question mark q"
    )
    assert read_email("jo_1@a.de", "es", "read").replace("\u00a0", " ") == "jo guion bajo uno arroba a punto D E"
    assert read_phone("+86 138-0013", "zh", "digits") == "加八六，幺三八，零零幺三"
    assert read_phone("03-1234", "ja", "digits") == "ゼロ三、一二三四"


MARKDOWN = {
    "# Title\ntext": "\nTitle\n\ntext",
    "**bold** _it_ ~~no~~ `code` snake_case 2*3*4": "bold it no code snake_case 2*3*4",
    "[text](http://a.b/c_(d)) ![alt](x.png) [ref][1]": "text alt ref",
    "> quote\n* item\n- [x] done\n---": "quote\n\nitem\n\ndone\n",
    "| a | b |\n|---|---|\n| 1 | 2 |": "a, b\n\n\n1, 2\n",
    "[h][ào] <b>x</b> <strong>y</strong> a<b": "[h][ào]  x  <strong>y</strong> a<b",
    "```\nnever closed": "```\nnever closed",
    r"\*no\* \(x\)": r"*no* \(x\)",
}


@pytest.mark.parametrize("written", MARKDOWN)
def test_markdown(written: str) -> None:
    assert strip_markdown(written) == (MARKDOWN[written], False)


FIGURES = (
    "1 23 4,567 4.567 8.9 8,9 $5 10% 3. 3e 1º 7:30 18.30 Uhr 8 h 05 24.12.2026 2026-01-05 99.99.9999 - / ( x kg км "
    "руб. г. № + = < ½ 0 00 007 1-2 5-й €1 , . 24:00 1 января 3 mai 3개 10시 月 3月 個 %"
)
READERS: list[Callable[[str], str]] = [
    *(partial(read_european, language=code) for code in ("de", "es", "fr", "it", "ru")),
    read_korean,
    read_japanese,
    read_chinese,
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FIGURES.split()), max_size=7), st.sampled_from(["", " "]))
def test_any_mixture_of_figures_reads_without_a_digit_left(parts: list[str], between: str) -> None:
    for read in READERS:
        assert not re.search("[0-9]", read(between.join(parts)))
