"""Chinese is read in characters, without losing anything."""

from __future__ import annotations

import pytest

from text.chinese import drop_spaces, read_chinese, tidy_chinese

READINGS = {
    "营收为1,284.6万元，增长23.7%。": "营收为一千二百八十四点六万元，增长百分之二十三点七。",
    "2026年3月9日下午14:30": "二零二六年三月九日下午十四点三十分",
    "1+1=2，10÷4=2.5，误差±0.3。": "一加一等于二，十除四等于二点五，误差正负零点三。",
    "单号是SF1029384756CN。": "单号是SF一零二九三八四七五六CN。",
    "价格是NT$350元。": "价格是新台币三百五十元。",
    "PyTorch 2.6 + CUDA 12.4": "PyTorch 二点六 + CUDA 十二点四",
    '他说"3.5"。': '他说"三点五"。',
    "没有数字的句子。": "没有数字的句子。",
}


@pytest.mark.parametrize("written", READINGS)
def test_reading(written: str) -> None:
    assert read_chinese(written) == READINGS[written]


def test_a_dot_inside_a_number_or_an_address_is_no_full_stop() -> None:
    assert tidy_chinese("2.6版. 见example.cn") == "2.6版。见example.cn"


def test_brackets_go_but_not_what_they_hold() -> None:
    assert tidy_chinese("今天（周一）见") == "今天周一见"


def test_spaces_stay_only_between_ascii_words() -> None:
    assert drop_spaces("你好 world foo 。") == "你好world foo。"
    assert drop_spaces(" 你 ") == "你"


def test_five_thousand_digits_are_quick() -> None:
    assert read_chinese("5" * 5000 + "个").startswith("五五五")
