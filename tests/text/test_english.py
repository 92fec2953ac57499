"""English is read out as a person would read it."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.english_readings import READINGS
from text import english_numbers as numbers
from text.clean import clean
from text.english import read_english


@pytest.mark.parametrize(("written", "spoken"), READINGS)
def test_reading(written: str, spoken: str) -> None:
    assert read_english(clean(written)) == spoken


def test_plain_words_are_left_as_they_are() -> None:
    text = "He read the lead story about the bass player who refused to present the present."
    assert read_english(text) == text


def test_every_comma_of_a_long_text_is_kept() -> None:
    text = ", ".join(["The keeper of the lighthouse counted boats"] * 60) + "."
    assert read_english(text) == text


@given(st.text(max_size=120))
def test_any_text_becomes_letters_and_plain_marks(text: str) -> None:
    spoken = read_english(clean(text.encode("utf-8", "ignore").decode()))
    assert not re.search(r"[0-9@#$%^&*_+=<>/\\|~\[\]{}()]", spoken)


FIGURES = "1 23 4,567 8.9 $5 10% 3rd 7:30 a.m. Dr. - / ( ) x kg No. Jan. 2024 : ."


@given(st.lists(st.sampled_from(FIGURES.split())))
def test_any_mixture_of_figures_reads_without_a_digit_left(parts: list[str]) -> None:
    assert not any(c.isdigit() for c in read_english(clean(" ".join(parts))))


HOSTILE = ["5", "a", "a.", "1.", "1,", "1-", "a-", "(", "$", "a@", " .", "\\a", "[a](", "1/", "_", '"', ".", "<a "]


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_repetition_costs_bounded_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    start = time.process_time()
    read_english(clean(text))
    assert time.process_time() - start < 2.5


def test_numbers_in_words() -> None:
    assert numbers.cardinal(0) == "zero"
    assert numbers.cardinal(1_000_001) == "one million one"
    assert numbers.cardinal(1_234_567, formal=True) == (
        "one million, two hundred and thirty-four thousand, five hundred and sixty-seven"
    )
    assert numbers.cardinal(2048, formal=True) == "two thousand and forty-eight"
    assert [numbers.ordinal(n) for n in (1, 2, 12, 20, 101)] == [
        "first",
        "second",
        "twelfth",
        "twentieth",
        "one hundred first",
    ]
    assert [numbers.year(n) for n in (1066, 1900, 1905, 2000, 2012)] == [
        "one thousand sixty-six",
        "nineteen hundred",
        "nineteen oh five",
        "two thousand",
        "twenty twelve",
    ]
