"""Segments are bounded, in order, and together they are the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.split import CHINESE_MARKS, ENGLISH_MARKS, count_words, cut_long, split_paragraph, split_words


def chinese(text: str) -> list[str]:
    return split_paragraph(text, marks=CHINESE_MARKS, stop="。", length=len)


def english(text: str) -> list[str]:
    return split_paragraph(text, marks=ENGLISH_MARKS, stop=".", length=lambda s: len(s.split()))


def test_a_missing_stop_is_added() -> None:
    assert english("Hello world") == ["Hello world."]
    assert chinese("你好") == ["你好。"]
    assert english('He said "go."') == ['He said "go."']


def test_a_closing_quote_stays_with_its_sentence() -> None:
    text = "啊" * 70 + "。她问，“你确定吗？”" + "啊" * 70
    assert chinese(text)[0].endswith("。") and chinese(text)[1].startswith("她问，“你确定吗？”")


def test_numbers_and_addresses_are_not_cut_at_their_dots() -> None:
    sentence = "word " * 50 + "version 2.6 of example.com."
    assert english(sentence) == [sentence]


def test_a_tag_pair_is_not_cut() -> None:
    text = "啊" * 65 + "。" + "<laughter>好！好！</laughter>" + "啊" * 65
    assert any("<laughter>好！好！</laughter>" in segment for segment in chinese(text))
    assert "".join(cut_long("啊" * 70 + "<strong>好的好的</strong>" + "啊" * 70, 80, len)).count("</strong>") == 1


@pytest.mark.parametrize(
    "text",
    ["春眠不觉晓处处闻啼鸟" * 66, "先去超市买菜，再到邮局寄信，" * 80, "好" * 5000, "。" * 50 + "好", "!好" * 200],
)
def test_chinese_without_sentence_ends_is_bounded_and_complete(text: str) -> None:
    segments = chinese(text)
    assert max(map(len, segments)) <= 160
    assert "".join(segments).rstrip("。") == text.rstrip("。")


@given(st.text(alphabet='ab好 .?!,;"”’。，<>[]', max_size=400))
def test_nothing_is_lost_whatever_the_punctuation(text: str) -> None:
    for segments in (chinese(text), english(text)):
        assert "".join(segments)[: len(text)] == text or not re.search(r"\w", text)


def test_splitting_is_quick_for_long_input() -> None:
    start = time.process_time()
    for text in ("好" * 20_000, "。" * 20_000, "a. " * 6_000, "<strong>" * 2_500, '"' * 20_000):
        chinese(text)
        english(text)
    assert time.process_time() - start < 5


VOCABULARY = "the cat sat, and then; it forty-two slept. Why? because no"
WORDS = st.lists(st.sampled_from(VOCABULARY.split()), min_size=1)


@given(WORDS)
def test_short_utterances_hold_every_word_in_order(words: list[str]) -> None:
    text = " ".join(words)
    utterances = split_words(text, 16)
    assert re.findall(r"\w+", " ".join(utterances)) == re.findall(r"\w+", text)
    assert all(count_words(utterance) <= 16 for utterance in utterances)
    assert all(utterance[-1] in ".,;:!?" for utterance in utterances)


def test_long_sentences_are_cut_where_a_speaker_breathes() -> None:
    text = (
        "It was the best of times, it was the worst of times, it was the age of wisdom, "
        "it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity."
    )
    assert split_words(text, 16) == [
        "It was the best of times, it was the worst of times,",
        "it was the age of wisdom, it was the age of foolishness,",
        "it was the epoch of belief, it was the epoch of incredulity.",
    ]


def test_a_sentence_without_commas_is_cut_into_even_parts_before_small_words() -> None:
    text = (
        "The committee decided to postpone the discussion of the new budget until after the summer holidays "
        "because several members were absent from the meeting on Tuesday."
    )
    parts = split_words(text, 16)
    assert [part.split()[0] for part in parts] == ["The", "until"]
    assert parts[0].endswith(",") and parts[1].endswith(".")


def test_a_lone_short_sentence_joins_its_neighbour() -> None:
    assert split_words("Yes. I would like to come with you today.", 16) == ["Yes. I would like to come with you today."]
    assert split_words("Yes.", 16) == ["Yes."]
