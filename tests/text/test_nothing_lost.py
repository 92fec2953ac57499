"""Nothing spoken is lost or invented, nothing is cut in two, and time grows with the text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from tests.text.stalls import longest_stall
from text import TextError, TextFrontend, TextOptions
from text.clean import clean
from text.english_numbers import cardinal
from text.normalise import normalise
from text.spans import find_spans
from text.split import CHINESE_MARKS, split_paragraph


@pytest.fixture(scope="module")
def frontend() -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(2).dir), Tokenizer.load(golden(2).dir, 2))


OFF = TextOptions(normalization="off", markdown="keep")
WORDS = "bqQ好们說가나пшéöかナ .,!?，。、“”-\n"
SCRIPTS = "bBqQ1 9好们說가나пшñéかナ .,!?，。、“”()-'\n"


FORMULA_PIECES = [
    "\\sum", "\\int", "_", "^", "{", "}", "{}", "\\frac", "\\sqrt", "[3]", "\\alpha", "\\circ", "\\text", "\\left",
    "\\foo", "\\", "x", "n", "2", "3", "-1", "=", "+", " ", "(", ")", "½", "²", "²^2", "\\sum_{}^{n}", "\\frac{}{", "$",
]  # fmt: skip


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=SCRIPTS, max_size=300))
def test_without_normalisation_every_letter_and_digit_stays_in_order(frontend: TextFrontend, text: str) -> None:
    try:
        segments = frontend.segments(text, OFF)
    except TextError as error:
        assert error.code in ("input_empty", "no_speakable_text")
        assert not letters(text)
        return
    assert letters("".join(segment.text for segment in segments)) == letters(clean(text))
    assert letters("".join(segment.tokens_text for segment in segments)) == letters(clean(text))


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet="bqQ好们說가나пшéöかナ .,!?，。、“”-\n", max_size=200), st.sampled_from(["auto", "zh", "de", "ja"])
)
def test_with_normalisation_every_letter_stays_in_order(frontend: TextFrontend, text: str, language: str) -> None:
    if not letters(text):
        return
    segments = frontend.segments(text, TextOptions(language=language, markdown="keep"))
    assert letters("".join(segment.tokens_text for segment in segments)) == letters(clean(text))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(21, 999), st.sampled_from(["apples", "pears", "walk", "over", "stones"])), min_size=1
    )
)
def test_each_english_number_is_read_where_it_stands(frontend: TextFrontend, words: list[int | str]) -> None:
    text = ", ".join(map(str, words))
    segments = frontend.segments(f"{text}.", TextOptions(language="en", phone="number"))
    expected = ", ".join(cardinal(word) if isinstance(word, int) else word for word in words)
    assert " ".join(segment.text for segment in segments).split() == f"{expected}.".split()


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120))
def test_the_spans_of_a_text_are_the_text(text: str) -> None:
    try:
        spans = find_spans(clean(text.encode("utf-8", "ignore").decode()))
    except TextError as error:
        assert error.code == "unsupported_language"
        return
    assert "".join(span.text for span in spans) == clean(text.encode("utf-8", "ignore").decode())


HOSTILE = [
    "5", "5,", "111 ", "1-", "a", "a.", "a@", "好", "3月9日，", "好a", "가1", "п1 ", "$x", "\\frac{", "[a](", "```\n",
    "**", "_a", "|", "<strong>", "[h]", "1.1.", "www.", "Ⅲ", "x^", "の1", "α ", "\ue000", "😀", "1:1", "de 1 €",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_repetition_costs_bounded_time(frontend: TextFrontend, unit: str) -> None:
    start = time.thread_time()
    try:
        frontend.segments((unit * 5_000)[:5_000])
    except TextError as error:
        assert error.code in ("no_speakable_text", "unsupported_language")
    assert time.thread_time() - start < 2


# What is tried again from each place of a run costs quadratic time only where the run does not end as it should.
RUNS = [
    ("", " ", "x"), ("# a", " ", "b"), ("", "~", "`"), ("--", " ", "x"), ("# ", "#", "a"), ("a", ",", "a"),
    ("好", "，", "好"), ("a\u0301", "\u0301", "\u0316" * 9_999), ("", "\u0f73", "x"), ("", "ﾞ\u0316", "x"),
    ("", "[h]，", ""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "unit", "behind"), RUNS)
def test_no_run_of_one_character_keeps_other_threads_waiting(
    frontend: TextFrontend, before: str, unit: str, behind: str
) -> None:
    text = before + unit * ((20_000 - len(before + behind)) // len(unit)) + behind

    def speak() -> None:
        try:
            frontend.segments(text)
        except TextError as error:
            assert error.code in ("no_speakable_text", "unsupported_language")

    assert longest_stall(speak) < 0.6


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(FORMULA_PIECES), max_size=12).map("".join),
    st.sampled_from(["de", "en", "ja", "ko", "zh"]),
)
def test_any_formula_is_read(frontend: TextFrontend, formula: str, language: str) -> None:
    text = f"So ${formula}$ {formula} 好"
    assert frontend.segments(text, TextOptions(language=language, markdown="keep"))


@pytest.mark.parametrize(
    ("unit", "size"),
    [("好", 100_000), ("Am 3. Mai kostet das 5,50 €. ", 100_000), ("5个，it was 5, 마지막 3개. ", 25_000)],
)
def test_five_times_the_text_takes_five_times_as_long(unit: str, size: int) -> None:
    """A factor of 25, as of a quadratic pass, would be seen; 15 leaves room for a busy machine."""

    def seconds(size: int) -> float:
        text = (unit * size)[:size]
        start = time.thread_time()
        spans, _ = normalise(clean(text), TextOptions(), ())
        split_paragraph("".join(span.text for span in spans), marks=CHINESE_MARKS, stop="。", length=len)
        return time.thread_time() - start

    seconds(1_000)
    assert seconds(size) < 15 * seconds(size // 5) + 0.1
