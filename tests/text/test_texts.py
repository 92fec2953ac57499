"""Difficult everyday texts, as the front end of CosyVoice 3 gives them to the tokenizer.

What each shows is its name. Where another reading would do as well, this one is a choice: addresses are spelled by
rule, a code block is left out (with a warning), Cantonese is told by its characters, short sentences are merged,
identifiers (CVE-2025-12345, SHA) are read in letters and numbers, Russian numbers stay in the nominative behind a
preposition, a script that no model speaks is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.config import load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from text import TextError, TextFrontend

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/texts.jsonl").read_text("utf-8").splitlines()
]
LONGEST = 160  # characters of Chinese, tokens of anything else

# What must stand in one segment, however it is cut.
WHOLE = [
    "一千二百八十四点六万元",
    "nine oh five PM",
    "two point ten point three",
    "zweitausendsechsundzwanzig",
    "neunundvierzig Euro neunzig",
    "treinta y siete euros",
    "mille deux cent cinquante",
    "diciassette e quarantacinque",
    "семь целых пять десятых процента",
    "二点六",
]


@pytest.fixture(scope="module")
def frontend() -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(3).dir), Tokenizer.load(golden(3).dir, 3))


def named(field: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in CASES if field in case]


def test_there_are_44_of_them() -> None:
    assert len(CASES) == 44 and all({"spoken", "error", "unit"} & set(case) for case in CASES)


@pytest.mark.parametrize("case", named("spoken"))
def test_it_is_spoken(frontend: TextFrontend, case: dict[str, Any]) -> None:
    if "ー" in case["spoken"]:
        pytest.importorskip("janome", reason="the extra japanese is not installed")
    analysis = frontend.analyse(case["text"])
    segments = [segment.tokens_text for segment in analysis.segments]
    assert "".join(segments) == case["spoken"]
    for whole in WHOLE:
        assert (whole in case["spoken"]) == any(whole in segment for segment in segments)
    assert ("```" in case["text"]) == ("code_skipped" in [warning.code for warning in analysis.warnings])


@pytest.mark.parametrize("case", named("error"))
def test_it_is_refused(frontend: TextFrontend, case: dict[str, Any]) -> None:
    with pytest.raises(TextError) as caught:
        frontend.segments(case["text"])
    assert caught.value.code == case["error"] and caught.value.message.endswith(".")


@pytest.mark.parametrize("case", named("unit"))
def test_text_without_sentence_ends_is_bounded_and_complete(frontend: TextFrontend, case: dict[str, Any]) -> None:
    text = case["unit"] * case["times"] + case["tail"]
    analysis = frontend.analyse(text)
    joined = "".join(segment.tokens_text for segment in analysis.segments)
    chinese = analysis.segments[0].language == "zh"
    assert len(analysis.segments) > 4
    assert max(len(s.tokens_text) for s in analysis.segments) <= LONGEST if chinese else max(analysis.tokens) <= LONGEST
    if text.isdigit():
        assert joined.rstrip(".").split() == ["five"] * len(text)
    else:  # a word that no one could say in one breath is read in several
        assert joined.rstrip("。.").replace(" ", "") == text.rstrip("。").replace(" ", "")
    if case["unit"].endswith(" "):
        assert all(segment.text.rstrip(".").split()[0] == case["unit"].strip() for segment in analysis.segments)


def test_the_language_of_each_is_found(frontend: TextFrontend) -> None:
    found = [frontend.segments(case["text"])[0].language for case in CASES if "spoken" in case]
    assert [found.count(code) for code in ("zh", "yue", "en", "ja", "ko", "de", "es", "fr", "it", "ru")] == [
        15, 1, 10, 4, 1, 1, 1, 1, 1, 1,
    ]  # fmt: skip
