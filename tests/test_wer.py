"""The yardstick itself: both sides are normalised alike, and errors are counted as Levenshtein counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wer import WordErrors, total, word_errors, words_of


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("It's 9:30.", "it is nine thirty"),
        ("I can't, I won't, I don't.", "I cannot I will not I do not"),
        ("Dr. Brown paid $25.", "Doctor Brown paid twenty-five dollars."),
        ("About 50%", "about fifty percent"),
        ("OK", "Okay."),
        ("We're here", "We are here"),
        ("my sister's house", "my sisters house"),
    ],
)
def test_spelling_is_no_error(said: str, heard: str) -> None:
    assert word_errors(said, heard).errors == 0


def test_substitution_insertion_and_deletion_count_one_each() -> None:
    assert word_errors("the cat sat", "the dog sat") == WordErrors(1, 3)
    assert word_errors("the cat sat", "the big cat sat") == WordErrors(1, 3)
    assert word_errors("the cat sat", "the sat") == WordErrors(1, 3)
    assert word_errors("the cat sat", "") == WordErrors(3, 3)
    assert total([WordErrors(1, 3), WordErrors(0, 7)]).rate == pytest.approx(0.1)


def test_the_everyday_sentences_are_forty_of_three_to_fourteen_words() -> None:
    sentences = (Path(__file__).parent / "data/everyday.txt").read_text().splitlines()
    assert len(set(sentences)) == 40
    assert all(3 <= len(words_of(sentence)) <= 14 for sentence in sentences)
