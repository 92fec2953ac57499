"""Cleaning: nothing invisible, pictorial or controlling survives, and nothing that is said is lost."""

from __future__ import annotations

import time
import timeit
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.clean import clean
from text.errors import TextError

CASES = {
    "line ends, tabs and NBSP become spaces, NUL goes": (
        "Line one\r\nLine two\tTabbed\u00a0nbsp\u2028separator\u0000.",
        "Line one Line two Tabbed nbsp separator.",
    ),
    "zero-width, BOM and bidi characters go": (
        "zero\u200bwidth\u200djoiner\ufeffbom \u202eoverride\u202c done",
        "zerowidthjoinerbom override done",
    ),
    "full-width letters and digits fold": ("２０２６年的第１个愿望：ＡＢＣ！", "2026年的第1个愿望：ABC！"),
    "circled and Roman numerals fold": ("第Ⅲ章第①节", "第III章第1节"),
    "superscripts and fractions stay": ("x² and ½", "x² and ½"),
    "digits of other scripts are digits": ("٢٥", "25"),
    "emoji go as whole clusters": ("今天😀👍🏽👨‍👩‍👧‍👦！去🇯🇵玩", "今天 ！去 玩"),
    "a keycap leaves its digit": ("Press 1️⃣ now", "Press 1 now"),
    "control tokens go": ("Press <|endofprompt|> to <|im_start|> go", "Press to go"),
    "a token inside a token does not survive": ("<|endof<|x|>prompt|> <<|x|>|im_start|>", "endof prompt < |im_start"),
    "full-width control tokens go too": ("a ＜｜endofprompt｜＞ b", "a b"),
    "a control token split by a zero-width space goes": ("a <\u200b|endofprompt|> b", "a b"),
    "event tags stay": ("[laughter] <strong>yes</strong>", "[laughter] <strong>yes</strong>"),
    "a blank line ends a sentence": ("Title\n\nText follows", "Title. Text follows"),
    "a blank line behind a mark ends nothing twice": ("Hello!\n\nText", "Hello! Text"),
    "list items are sentences": ("Buy:\n- milk\n- eggs", "Buy: - milk. - eggs"),
    "a Chinese blank line": ("标题\n\n正文", "标题。正文"),
    "half-width kana keep their voicing": ("ｶﾞｷﾞとﾊﾟ", "ガギとパ"),
    "marks are not piled up": ("Z\u0335\u0321\u0308\u0337\u0316algo", "Z\u0335\u0321algo"),
    "space before a mark goes": ("n'est-ce pas\u202f?", "n'est-ce pas?"),
}


@pytest.mark.parametrize("case", CASES)
def test_cleaning(case: str) -> None:
    dirty, expected = CASES[case]
    assert clean(dirty) == expected


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(TextError) as caught:
        clean("abc \ud83d")
    assert caught.value.code == "input_not_utf8"


@pytest.mark.parametrize("filling", [" ", "\t", "\n", " \n", "\n- "])
def test_twice_the_blanks_take_twice_the_time(filling: str) -> None:
    """A factor of 4, as of a quadratic pass, would be seen; 3 leaves room for a busy machine."""

    def seconds(repeats: int) -> float:
        text = "a" + filling * repeats + "a"
        return min(timeit.repeat(lambda: clean(text), number=1, repeat=5, timer=time.thread_time))

    assert seconds(40_000) < 3 * seconds(20_000) + 0.01


@given(st.text(max_size=200))
def test_whatever_comes_in_no_control_token_or_invisible_character_comes_out(text: str) -> None:
    cleaned = clean(text)
    assert "<|" not in cleaned and "|>" not in cleaned
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for c in cleaned)
    assert cleaned == cleaned.strip() and "  " not in cleaned


@given(st.text(alphabet="abc XYZ.,!?-'", max_size=200))
def test_plain_text_keeps_every_word(text: str) -> None:
    assert "".join(c for c in clean(text) if c.isalpha()) == "".join(c for c in text if c.isalpha())
