"""Chinese is read in characters, without losing anything."""

# ruff: noqa: E501 (what is written and how it is read stand on one line)

from __future__ import annotations

import pytest

from text.chinese import drop_spaces, read_chinese, tidy_chinese

READINGS = {
    "营收为1,284.6万元，增长23.7%。": "营收为一千二百八十四点六万元，增长百分之二十三点七。",
    "2026年3月9日下午14:30": "二零二六年三月九日下午十四点三十分",
    "20世纪90年代，07年": "二十世纪九十年代，零七年",
    "1+1=2，10÷4=2.5，误差±0.3。": "一加一等于二，十除以四等于二点五，误差正负零点三。",
    "x²+y²≥2xy，x^2=4，10⁵，√2，π≈3.14": "x的平方加y的平方大于等于二xy，x的平方等于四，十的五次方，根号二，派约等于三点一四",
    "1e5，a≠b，比分3:2，3/4，5-10人": "一乘十的五次方，a不等于b，比分三比二，四分之三，五到十人",
    "单号是SF1029384756CN。": "单号是SF一零二九三八四七五六CN。",
    "订单号20240309，共5000元": "订单号二零二四零三零九，共五千元",
    "验证码：8812，房间1203，1203室，3室": "验证码：八八一二，房间幺二零三，幺二零三室，三室",
    "京A·88888，列夫·托尔斯泰": "京A八八八八八，列夫·托尔斯泰",
    "价格是NT$350元，HK$20，US$3.5，¥99。": "价格是新台币三百五十元，二十港元，三点五美元，九十九元。",
    "PyTorch 2.6 + CUDA 12.4，RTF<0.1": "PyTorch 二点六加CUDA 十二点四，RTF小于零点一",
    "第III章第1节，No.5，150ms，30℃": "第三章第一节，编号五，一百五十毫秒，三十摄氏度",
    "v2.10.3，192.168.1.1": "v二点一零点三，一九二点一六八点一点一",
    "¥1,299.00起，$3.5M，€20": "一千二百九十九元起，三点五百万美元，二十欧元",
    "60W，3kWh，120km/h，-3℃": "六十瓦，三千瓦时，每小时一百二十公里，负三摄氏度",
    "30%-50%，20~30度，2-3个，50+人": "百分之三十到百分之五十，二十到三十度，两到三个，五十多人",
    "10:00-12:30，3月9-11日，7*24小时": "十点到十二点三十分，三月九到十一日，七乘二十四小时",
    "COVID-19，H1N1，RTX4090，1080p，2^10": "COVID 十九，H一N一，RTX四零九零，一零八零p，二的十次方",
    "#话题# QQ：12345，1st": "话题 QQ：一二三四五，第一",
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
