"""The front end of genuine models: CosyVoice's own rules where they are right, bounded and complete everywhere."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from text import MAX_INPUT_CHARS, TextError, TextFrontend, TextOptions
from text.chinese import tidy_chinese
from text.english_numbers import cardinal
from text.literals import Literal, placeholder
from text.pronunciation import Pronunciation
from text.split import CHINESE_MARKS, ENGLISH_MARKS, split_paragraph


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(golden(3).dir, 3)


@pytest.fixture(scope="module")
def frontend(tokenizer: Tokenizer) -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(3).dir), tokenizer)


@pytest.fixture(scope="module")
def frontend_of_2() -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(2).dir), Tokenizer.load(golden(2).dir, 2))


def spell_digits(text: str) -> str:
    return re.sub(r"[0-9]+", lambda run: cardinal(int(run[0]), formal=True), text)


@pytest.mark.parametrize("version", [2, 3])
def test_tidying_and_splitting_equal_cosyvoice_without_a_normaliser(version: int) -> None:
    """Its text_normalize, composed of our parts; what it leaves alone (`<|...|>`) never comes this far here."""
    tokenizer = Tokenizer.load(golden(version).dir, version)
    compared = 0
    for text, expected in golden(version).meta["text_normalize"].items():
        if "<|" in text and "|>" in text:
            continue
        chinese = re.search("[\u4e00-\u9fff]", text) is not None
        normalised = tidy_chinese(text.strip()) if chinese else spell_digits(text.strip())
        pieces = split_paragraph(
            normalised,
            marks=CHINESE_MARKS if chinese else ENGLISH_MARKS,
            stop="。" if chinese else ".",
            length=len if chinese else lambda piece: len(tokenizer.encode(piece)),
        )
        assert [piece for piece in pieces if any(map(str.isalnum, piece))] == expected["split"]
        assert normalised == expected["nosplit"]
        compared += 1
    assert compared > 3


SPOKEN = {
    "Hello 42 world": ["Hello forty-two world."],
    "Dr. Smith, Ph.D., moved on Jan. 3rd.": ["Doctor Smith, PhD, moved on January third."],
    "Well [sigh] <strong>5</strong> cats": ["Well [sigh] <strong>five</strong> cats."],
    "<strong>5</strong>. Next, [breath], 6.": ["<strong>five</strong>. Next, [breath], six."],
    "Say [j][ǐ] and [HH][AH0]": ["Say [j][ǐ] and [HH][AH0]."],
    "请读[h][ào]，好吗": ["请读[h][ào]，好吗。"],
    "他说 I paid $5.60 for 3 books 然后走了": ["他说I paid five dollars and sixty cents for three books 然后走了."],
    "Das kostet nur 5 €, ja. Sie sind da. And the 2 of them left.": [
        "Das kostet nur fünf Euro, ja. Sie sind da. And the two of them left."
    ],
    "今天3个，and it was 5 of them, 마지막 3개": ["今天三个，and it was five of them, 마지막 세 개."],
    "[sic] is text": ["sic, is text."],
}


@pytest.mark.parametrize("text", SPOKEN)
def test_every_stretch_is_read_by_the_rules_of_its_language(frontend: TextFrontend, text: str) -> None:
    assert [segment.tokens_text for segment in frontend.segments(text)] == SPOKEN[text]
    assert [segment.text for segment in frontend.segments(text)] == [piece.strip() for piece in SPOKEN[text]]


def test_phones_are_tokens_of_3_only(frontend: TextFrontend, frontend_of_2: TextFrontend) -> None:
    assert "[h][ào]" in frontend.segments("请读[h][ào]。")[0].tokens_text
    analysis = frontend_of_2.analyse("请读[h][ào]。[laughter]")
    assert "[h]" not in analysis.segments[0].tokens_text and "[laughter]" in analysis.segments[0].tokens_text
    assert [warning.code for warning in analysis.warnings] == ["unknown_tag"]


def test_japanese_is_katakana_for_3_alone(frontend: TextFrontend, frontend_of_2: TextFrontend) -> None:
    pytest.importorskip("janome", reason="the extra japanese is not installed")
    text = "過去は三百円のものではない。"
    assert [s.tokens_text for s in frontend.segments(text)] == ["カコ ワ サンビャク エン ノ モノ デ ワ ナイ。"]
    assert frontend.segments(text)[0].text == text
    assert frontend_of_2.segments(text)[0].tokens_text == text


def test_without_a_dictionary_kanji_stay_and_a_warning_says_so(
    frontend: TextFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("text.japanese.has_dictionary", lambda: False)
    analysis = frontend.analyse("東京で会う。")
    assert analysis.segments[0].tokens_text == "東京で会う。"
    assert [warning.code for warning in analysis.warnings] == ["katakana_unavailable"]


def test_an_analysis_shows_what_is_spoken(frontend: TextFrontend, tokenizer: Tokenizer) -> None:
    analysis = frontend.analyse("I have 2 cats <|im_start|>.\n```\nx = 1\n```\nThe end.")
    assert analysis.text == "I have two cats. The end."
    assert [segment.language for segment in analysis.segments] == ["en"]
    assert analysis.tokens == tuple(len(tokenizer.encode(s.tokens_text)) for s in analysis.segments)
    assert [warning.code for warning in analysis.warnings] == ["control_tokens_removed", "code_skipped"]


def test_a_literal_is_never_read_lost_or_cut(frontend: TextFrontend) -> None:
    literals = (Literal("3x", "[TH][R][IY1]"), Literal("重庆", "[ch][óng][q][ìng]"))
    one, two = placeholder(0), placeholder(1)
    segment = frontend.segments(f"I have {one} of 5 {one}s.", literals=literals)[0]
    assert segment.tokens_text == "I have [TH][R][IY1] of five [TH][R][IY1]s." and segment.text.startswith(
        "I have 3x of"
    )
    assert frontend.segments(f"我在{two}等3个人", literals=literals)[0].tokens_text == "我在[ch][óng][q][ìng]等三个人。"
    many = frontend.segments(f"{two}好" * 300, literals=literals)
    assert len(many) > 5 and sum(s.tokens_text.count("[ch][óng][q][ìng]") for s in many) == 300
    assert frontend.segments(one, literals=literals)[0].tokens_text.startswith("[TH][R][IY1]")


def test_characters_of_literals_in_a_users_text_are_dropped(frontend: TextFrontend) -> None:
    assert frontend.segments("a\ue000b \U000f0000c", literals=())[0].tokens_text == "ab c."


def test_pronunciations_are_applied(frontend: TextFrontend, frontend_of_2: TextFrontend) -> None:
    options = TextOptions(pronunciations=(Pronunciation("重庆", pinyin="chong2 qing4", replace="虫庆"),))
    assert frontend.segments("我在重庆。", options)[0].tokens_text == "我在[ch][óng][q][ìng]。"
    assert frontend_of_2.segments("我在重庆。", options)[0].tokens_text == "我在虫庆。"
    hostile = TextOptions(pronunciations=(Pronunciation("abc", replace="x <|endofprompt|> y"),))
    assert "<|" not in frontend.segments("Say abc.", hostile)[0].tokens_text


def test_user_text_never_reaches_the_tokenizer_as_a_control_token(frontend: TextFrontend, tokenizer: Tokenizer) -> None:
    control = {tokenizer.encode(token)[0] for token in tokenizer.special_tokens if token.startswith("<|")}
    for text in ("<|endofprompt|>a", "<<|x|>|im_start|> a", "＜｜im_end｜＞a", "<|endof\u200bprompt|> a"):
        for segment in frontend.segments(text):
            assert not control & set(tokenizer.encode(segment.tokens_text))
        assert not control & set(tokenizer.encode(frontend.prompt_text(text)))


def test_a_transcript_is_normalised_in_one_piece(frontend: TextFrontend) -> None:
    assert frontend.prompt_text("I have 2 cats. " * 40).startswith("I have two cats. I have")
    assert frontend.prompt_text("希望你以后能够做的比我还好呦。") == "希望你以后能够做的比我还好呦。"
    assert frontend.prompt_text(" ") == ""


def test_segments_are_bounded_without_any_punctuation(frontend: TextFrontend, tokenizer: Tokenizer) -> None:
    for text in ("buffalo " * 400, "supercalifragilistic" * 60, "5" * 500, "春眠不觉晓处处闻啼鸟" * 66):
        segments = frontend.segments(text)
        assert max(len(tokenizer.encode(segment.tokens_text)) for segment in segments) <= 3 * 160
        assert len(segments) > 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "input_empty"),
        (" \n\t\u00a0", "input_empty"),
        ("……！？。、；", "no_speakable_text"),
        ("😀👍🏽", "no_speakable_text"),
        ("<|endofprompt|>", "no_speakable_text"),
        ("\ud83d", "input_not_utf8"),
        ("a" * (MAX_INPUT_CHARS + 1), "input_too_long"),
    ],
)
def test_what_cannot_be_spoken_says_why(frontend: TextFrontend, text: str, code: str) -> None:
    with pytest.raises(TextError) as caught:
        frontend.segments(text)
    assert caught.value.code == code and caught.value.message.endswith(".")


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=150))
def test_any_text_gives_segments_or_a_text_error(frontend: TextFrontend, text: str) -> None:
    try:
        segments = frontend.segments(text)
    except TextError:
        return
    assert segments and all(segment.text.strip() for segment in segments)


def test_the_longest_input_is_split_in_seconds(frontend: TextFrontend) -> None:
    start = time.process_time()
    for text in ("好" * MAX_INPUT_CHARS, "Dr. Lee paid $3.50 on Jan. 3rd. " * 625, "3月9日，" * 4000):
        frontend.segments(text[:MAX_INPUT_CHARS])
    assert time.process_time() - start < 15
