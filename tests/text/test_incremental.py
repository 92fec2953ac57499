"""Text that arrives in portions: what is cut where, that nothing is lost, and that it takes linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text.incremental import LONGEST_PIECE, LONGEST_WORD, POLICIES, IncrementalText

PORTIONS = st.lists(st.integers(1, 12), min_size=1, max_size=40)
_ALPHABET = list("ab B.。,，!?！\"'”」)：;… \n-19五百好的é\u0301\u200d\ufe0f😀🏽🇯🇵<>/[]`|\ud83d\ude00")
_WORDS = [
    "Dr. ",
    "p.m. ",
    "3.5",
    "1,284",
    "https://a.b/c.d?e=1. ",
    "[laughter]",
    "<strong>",
    "</strong>",
    "```",
    "\n- ",
]
ODD_TEXT = st.lists(st.sampled_from(_ALPHABET + _WORDS), max_size=300).map("".join)


def pieces(text: str, policy: str = "sentence", portions: list[int] | None = None) -> list[str]:
    incremental, found, start = IncrementalText(policy), [], 0
    for size in portions or [len(text)]:
        found += incremental.feed(text[start : start + size])
        start += size
    return found + incremental.feed(text[start:]) + incremental.flush()


def units(text: str) -> bytes:
    """As UTF-16: halves of a pair are the same as the pair."""
    return text.encode("utf-16-le", "surrogatepass")


SENTENCES = [
    ["Dr. Smith, Ph.D., of St. Mary's Hosp. paid $3.50 at 9:05 p.m. PST.", " He left!", ' "Really?" she asked.'],
    ["See https://a.b/c.d?e=1 and mail x.y@z.org now.", " Version 2.10.3 is out!", " Is it 1,284.6?"],
    ["No. 5 is alive.", " No.", " I said it in 1999.", " Room 3. is full."],
    ["Am 3. Mai bzw. z.B. morgen.", " Und dann?"],
    ["他说：“你好。”", "她走了。", "价格是3.5元，合1，284元！", "太好了！", "👨‍👩‍👧‍👦🇯🇵👍🏽出发。", "再见"],
    ["你好!", "今天好。」", "Fine.", "好"],
    ["1. First item\n", "2. Second item\n", "- third\nstill third\n\n", "A new paragraph"],
    ["真正重要的是<strong>耐心。不是</strong>速度。", "<laughter>笑。了</laughter>好。"],
    ["Great.[laughter]", " So [h][ào] it is.", ' <break time="1. 5s"/> Next?'],
    ["Look:\n```python\nx = 1. y\n\nz\n``` There.", " Done"],
]


@pytest.mark.parametrize("expected", SENTENCES)
def test_sentences(expected: list[str]) -> None:
    text = "".join(expected)
    assert pieces(text) == expected
    assert pieces(text, portions=[1] * len(text)) == expected


def test_a_mark_without_words_is_no_sentence() -> None:
    assert pieces("... Well... maybe.") == ["... Well...", " maybe."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When it rained hard, we stayed. Yes, we did.", ["When it rained hard,", " we stayed.", " Yes, we did."]),
        ("先去超市买菜，再到邮局，好。", ["先去超市买菜，", "再到邮局，好。"]),
        (
            "It costs 1,284,000 pounds, or 10:30 hours of it: fine.",
            ["It costs 1,284,000 pounds,", " or 10:30 hours of it:", " fine."],
        ),
    ],
)
def test_clauses_of_some_length(text: str, expected: list[str]) -> None:
    assert pieces(text, "clause") == expected
    assert pieces(text, "clause", [1] * len(text)) == expected


@pytest.mark.parametrize(
    ("fed", "spoken"),
    [
        ("Hello there. ", ["Hello there."]),
        ("Hello there.", []),
        ("It is 3.", []),
        ("你好。", []),
        ("你好。再", ["你好。"]),
        ("Hello! How", ["Hello!"]),
    ],
)
def test_a_piece_comes_as_soon_as_nothing_can_change_it(fed: str, spoken: list[str]) -> None:
    assert IncrementalText().feed(fed) == spoken


@settings(max_examples=150, deadline=None)
@given(ODD_TEXT, PORTIONS, st.sampled_from(POLICIES))
def test_all_that_is_fed_comes_out_once_whatever_the_portions(text: str, portions: list[int], policy: str) -> None:
    found = pieces(text, policy, portions)
    assert units("".join(found)) == units(text)
    assert found == pieces(text, policy)
    assert all(found)


@settings(max_examples=60, deadline=None)
@given(PORTIONS, st.sampled_from(POLICIES))
def test_atoms_stay_whole(portions: list[int], policy: str) -> None:
    atoms = [
        "https://e.cn/a,b;c?d=1.",
        "1,284.6",
        "p.m.",
        "Dr. Lee",
        "👨‍👩‍👧‍👦",
        "<strong>a. b, c</strong>",
        "[laughter]",
        "三百五十",
    ]
    text = "".join(f"{atom}, 然后，and then we go on. " for atom in atoms * 3)
    found = pieces(text, policy, portions)
    assert len(found) > len(atoms)
    for atom in atoms:
        assert sum(piece.count(atom) for piece in found) == 3


@pytest.mark.parametrize("text", ["好" * 5000, "word " * 2000, "三" * 5000, "1 " * 3000, "x" * 5000, "a, " * 3000])
def test_text_without_ends_is_cut_all_the_same(text: str) -> None:
    found = pieces(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= LONGEST_WORD + LONGEST_PIECE


def test_flags_of_an_endless_word_stay_whole() -> None:
    for shift in range(4):
        text = "x" * shift + "👍🏽" * 1000 + "e\u0301" * 1000
        for piece in pieces(text):
            assert not piece.startswith(("🏽", "\u0301"))


@pytest.mark.parametrize(
    "unit",
    [
        "好",
        "a",
        " ",
        "\n",
        "<a ",
        "<strong>",
        "[a ",
        "``` ",
        ".",
        "word ",
        "🇯🇵",
        "1 ",
        'a." ',
        "No. ",
        "你好。",
        "```x ",
        "(",
    ],
)
def test_the_time_is_linear(unit: str) -> None:
    """Ten times the text, in portions of 50 characters, takes about ten times as long; quadratic would be a hundred."""

    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        began = time.process_time()
        pieces(text, "clause", [50] * (length // 50))
        return time.process_time() - began

    few = min(seconds(2_000) for _ in range(3))
    assert min(seconds(20_000) for _ in range(2)) < 35 * few + 0.02
