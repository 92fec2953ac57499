"""The front end of genuine models: equal to CosyVoice's own where that is right, bounded and complete everywhere."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from text import MAX_INPUT_CHARS, TextError, TextFrontend
from text.frontend import UpstreamFrontend


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(golden(2).dir, 2)


@pytest.fixture(scope="module")
def frontend(tokenizer: Tokenizer) -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(2).dir), tokenizer)


@pytest.mark.parametrize("version", [2, 3])
def test_without_a_normaliser_it_equals_cosyvoice(version: int) -> None:
    tokenizer = Tokenizer.load(golden(version).dir, version)
    plain = UpstreamFrontend(lambda text: len(tokenizer.encode(text)), normalizer="none")
    for text, expected in golden(version).meta["text_normalize"].items():
        assert plain.split(text) == expected["split"]
        assert plain.normalise(text) == expected["nosplit"]


SPOKEN = {
    "Hello 42 world": ["Hello forty-two world."],
    "Dr. Smith, Ph.D., moved on Jan. 3rd.": ["Doctor Smith, PhD, moved on January third."],
    "毛利率达到41.05%。": ["毛利率达到百分之四十一点零五。"],
    "我们用 PyTorch 2.6 跑 TTS，太 nice 了！": ["我们用PyTorch二点六跑TTS，太nice了！"],
    "他刚想开口[laughter]，又<laughter>笑出了声</laughter>。": [
        "他刚想开口[laughter]，又<laughter>笑出了声</laughter>。"
    ],
    "Well [sigh] <strong>5</strong> cats": ["Well [sigh] <strong>five</strong> cats."],
    "Say [j][ǐ] and [HH][AH0]": ["Say [j][ǐ] and [HH][AH0]."],
    "レキシ テキ ナ タテモノ。": ["レキシ テキ ナ タテモノ。"],
    "1個500円のリンゴを12個買う": ["1個500円のリンゴを12個買う。"],
    "예산은 1,250만 원입니다.": ["예산은 1,250만 원입니다."],
    "Am 24.12.2026 kostet das Menü 49,90 €.": ["Am 24.12.2026 kostet das Menü 49,90 €."],
    "Il treno delle 17.45 parte dal binario 3; costa 12,50 €.": [
        "Il treno delle 17.45 parte dal binario 3; costa 12,50 €."
    ],
    "Press <|endofprompt|> now": ["Press now."],
}


@pytest.mark.parametrize("text", SPOKEN)
def test_every_language_is_read_by_its_own_rules_or_left_to_the_model(frontend: TextFrontend, text: str) -> None:
    segments = frontend.segments(text)
    assert [segment.tokens_text for segment in segments] == SPOKEN[text]
    assert [segment.text for segment in segments] == [piece.strip() for piece in SPOKEN[text]]


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
