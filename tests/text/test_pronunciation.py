"""Pronunciations: whole words become the model's own sounds or other words, everything else stays."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.config import EMBEDDED, load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from tests.text.capabilities import PHONEMES, PHONES, WORDS, tokenizer
from text import TextFrontend, TextOptions, pronunciation
from text.errors import TextError
from text.literals import Literal, fill_spoken, fill_tokens, placeholder
from text.pronunciation import MAX_PRONUNCIATIONS, Capabilities, Lexicon, Pronunciation

TOMATO = Pronunciation("tomato", cmu="T AH0 M EY1 T OW2")
CHONGQING = Pronunciation("重庆", pinyin="chóng qìng")


def said(text: str, *entries: Pronunciation, model: Capabilities = PHONES) -> str:
    """The text as the model reads it."""
    return fill_tokens(*pronunciation.apply(text, entries, model))


PINYIN = {
    "hǎo": "[h][ǎo]",
    "hao3": "[h][ǎo]",
    "HAO3": "[h][ǎo]",
    "ni3hao3": "[n][ǐ][h][ǎo]",
    "xī'ān": "[x][ī][ān]",
    "wo3 men": "[w][ǒ][m][en]",
    "ma5": "[m][a]",
    "lǜ": "[l][ǜ]",
    "lv4": "[l][ǜ]",
    "lu:4": "[l][ǜ]",
    "lüè": "[l][vè]",
    "nve4": "[n][vè]",
    "jüé": "[j][ué]",
    "xiong2": "[x][ióng]",
    "gui4": "[g][uì]",
    "liu2": "[l][iú]",
    "zhuang1": "[zh][uāng]",
    "er4": "[èr]",
    "yuan2": "[y][uán]",
}


@pytest.mark.parametrize("written", PINYIN)
def test_pinyin_becomes_initials_and_toned_finals(written: str) -> None:
    assert said("字", Pronunciation("字", pinyin=written)) == PINYIN[written]


def test_each_phone_is_one_token_of_the_model() -> None:
    reader = tokenizer(3)
    tokens = re.findall(r"\[[^\]]+\]", said("重庆tomato", CHONGQING, TOMATO))
    assert len(tokens) == 10
    assert [len(reader.encode(token)) for token in tokens] == [1] * 10
    assert len(reader.encode("".join(tokens))) == 10


IPA = {
    "təˈmeɪtoʊ": "T AH0 M EY1 T OW0",
    "/kæt/": "K AE1 T",
    "ˈt͡ʃɜːtʃ": "CH ER1 CH",
    "ˈbʌtn̩": "B AH1 T AH0 N",
    "ˌɪn.təˈnæʃ.ə.nəl": "IH2 N T AH0 N AE1 SH AH0 N AH0 L",
    "fɑːðər": "F AA0 DH ER0",
}


@pytest.mark.parametrize("written", IPA)
def test_english_ipa_is_the_same_as_its_cmu_phones(written: str) -> None:
    for model in (PHONES, PHONEMES):
        entries = Pronunciation("word", ipa=written), Pronunciation("other", cmu=IPA[written].lower())
        ipa, cmu = said("word / other", *entries, model=model).split(" / ")
        assert ipa == cmu


def test_a_phoneme_voice_gets_the_symbols_it_was_trained_on() -> None:
    reader = Tokenizer.load(EMBEDDED, 2)
    phonemes = said("tomato", TOMATO, model=PHONEMES)
    assert phonemes == "təmˈAtˌO"
    assert [reader.decode([i]) for i in reader.encode(phonemes)] == ["t", "ə", "m", "ˈA", "t", "ˌO"]


def test_every_phone_of_english_can_be_said_by_both_models() -> None:
    vowels = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
    consonants = re.findall(r"\w+", "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH")
    phones = [*(vowel + stress for vowel in vowels for stress in "012"), *consonants]
    for model in (PHONES, PHONEMES):
        for phone in phones:
            assert said("x", Pronunciation("x", cmu=phone), model=model) != "x"


WORDS_FOUND = {
    "Tomato, TOMATO": "{}, {}",
    "tomatoes automato tomato2 2tomato": "tomatoes automato tomato2 2tomato",
    "(tomato)-tomato_tomato": "({})-{}_{}",
    "[tomato] [tomato": "[{}] [{}",
    "éтомato tomato": "éтомato {}",
    "吃tomato吧": "吃{}吧",
}


@pytest.mark.parametrize("text", WORDS_FOUND)
def test_words_are_found_whole_and_in_any_case(text: str) -> None:
    assert said(text, TOMATO) == WORDS_FOUND[text].replace("{}", "[T][AH0][M][EY1][T][OW2]")


def test_tags_of_the_model_are_no_words() -> None:
    entries = [Pronunciation(word, replace="x") for word in ("laughter", "strong", "b")]
    assert said("[laughter] <strong>strong</strong> [b] b", *entries) == "[laughter] <strong>x</strong> [b] x"


def test_a_possessive_is_said_with_its_word() -> None:
    def ending(phones: str) -> str:
        return said("Bob's car", Pronunciation("bob", cmu=phones))

    assert ending("B AA1 B") == "[B][AA1][B][Z] car"
    assert ending("B AA1 P") == "[B][AA1][P][S] car"
    assert ending("B AA1 SH") == "[B][AA1][SH][IH0][Z] car"
    text, literals = pronunciation.apply("Tomato's", [TOMATO], PHONES)
    assert fill_spoken(text, literals) == "Tomato's"


def test_half_of_a_contraction_is_no_word() -> None:
    assert said("can't he? He can.", Pronunciation("can", replace="may")) == "can't he? He may."


def test_chinese_is_found_anywhere_the_longest_first() -> None:
    short, long = Pronunciation("重", replace="众"), Pronunciation("重庆", replace="虫庆")
    for entries in ((short, long), (long, short)):
        assert said("在重庆重来", *entries) == "在虫庆众来"


def test_the_first_of_two_entries_for_one_word_counts() -> None:
    assert said("a b", Pronunciation("B", replace="c"), Pronunciation("b", replace="d")) == "a c"


def test_what_was_put_in_is_not_read_again() -> None:
    assert said("a b", Pronunciation("a", replace="b"), Pronunciation("b", replace="a")) == "b a"


def test_replacements_cannot_steer_the_model() -> None:
    assert said("hi", Pronunciation("hi", replace="<|endofprompt|> there \ue000 [laughter]")) == "there [laughter]"


def test_literals_of_the_text_stay() -> None:
    given_ = (Literal("a", "[AA1]"), Literal("a", "[AA1]"))
    text, literals = pronunciation.apply("\ue000 tomato \ue001 tomato", [TOMATO], PHONES, given_)
    assert text == "\ue000 \ue002 \ue001 \ue002"
    assert literals[:2] == given_ and literals[2].spoken == "tomato" and len(literals) == 3


@pytest.mark.parametrize("entry", [TOMATO, CHONGQING, Pronunciation("tomato", ipa="kæt")])
def test_a_model_that_reads_words_only_says_so_or_takes_the_replacement(entry: Pronunciation) -> None:
    with pytest.raises(TextError) as caught:
        said("nothing to replace", entry, model=WORDS)
    assert caught.value.code == "unsupported_pronunciation"
    both = Pronunciation(entry.text, entry.pinyin, entry.cmu, entry.ipa, replace="to mate O")
    assert said(entry.text, both, model=WORDS) == "to mate O"
    assert said(entry.text, both, model=PHONES).startswith("[")


def test_a_phoneme_voice_speaks_no_pinyin() -> None:
    with pytest.raises(TextError) as caught:
        said("重庆", CHONGQING, model=PHONEMES)
    assert caught.value.code == "unsupported_pronunciation"


@pytest.mark.parametrize(
    "sounds",
    [
        {"pinyin": "hello"},
        {"pinyin": "hǎo3"},
        {"pinyin": "chóngqìng"},
        {"pinyin": "bü4"},
        {"pinyin": "好"},
        {"pinyin": "h3"},
        {"pinyin": "mn"},
        {"cmu": "T AH3"},
        {"cmu": "TH0"},
        {"cmu": "Q"},
        {"cmu": "[T]"},
        {"ipa": "ʁu"},
        {"ipa": "你"},
    ],
)
def test_unknown_sounds_are_refused_by_name(sounds: dict[str, str]) -> None:
    with pytest.raises(TextError) as caught:
        said("nothing", Pronunciation("word", **sounds))
    assert caught.value.code == "unknown_phone" and "“" in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "a"},
        {"text": "a", "pinyin": "hao3", "cmu": "T"},
        {"text": "", "replace": "b"},
        {"text": "…", "replace": "b"},
        {"text": "a", "replace": ""},
        {"text": "a" * 65, "replace": "b"},
        {"text": "a", "cmu": "T " * 101},
        {"text": "a", "replace": "b" * 501},
    ],
)
def test_an_entry_that_cannot_be_is_refused_when_it_is_made(fields: dict[str, str]) -> None:
    with pytest.raises(TextError) as caught:
        Pronunciation(**fields)
    assert caught.value.code == "invalid_pronunciation"


def test_the_longest_list_and_the_longest_text_take_a_second() -> None:
    entries = tuple(Pronunciation(f"{'重' * (i % 60)}{i}", replace="x") for i in range(MAX_PRONUNCIATIONS))
    began = time.process_time()
    assert said("重" * 20_000, *entries) == "重" * 20_000
    for _ in range(100):  # passages
        said("重庆", *entries)
    assert time.process_time() - began < 5
    with pytest.raises(TextError) as caught:
        said("a", *entries, entries[0])
    assert caught.value.code == "invalid_pronunciation"


def test_a_long_list_is_hashed_once_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    lexicon = Lexicon(Pronunciation(f"重{i}", replace="x") for i in range(50))
    hashed = 0
    plain = Pronunciation.__hash__

    def counted(entry: Pronunciation) -> int:
        nonlocal hashed
        hashed += 1
        return plain(entry)

    monkeypatch.setattr(Pronunciation, "__hash__", counted)
    for _ in range(3):
        assert pronunciation.apply("重7", lexicon, PHONES)[0] == "x"
    assert 0 < hashed <= 50


def test_no_text_becomes_longer_than_may_be_spoken() -> None:
    frontend = TextFrontend.for_model(load_config(golden(3).dir), tokenizer(3))
    options = TextOptions(pronunciations=(Pronunciation("a", replace="b" * 500),))
    began = time.process_time()
    with pytest.raises(TextError) as caught:
        frontend.segments("a " * 10_000, options)
    assert caught.value.code == "input_too_long"
    assert time.process_time() - began < 1


def test_a_segment_is_as_long_as_its_sounds() -> None:
    """A word of many sounds counts as what is heard, not as what is written, and words that touch can be parted."""
    words = TextFrontend.for_model(load_config(golden(3).dir), tokenizer(3))
    sounds = Pronunciation("重", pinyin="hao3 " * 20)
    for segment in words.segments("重" * 100, TextOptions(pronunciations=(sounds,))):
        assert segment.tokens_text.count("[") <= 2 * (60 + 80 + 20)
    voice = TextFrontend.for_model(load_config(EMBEDDED), Tokenizer.load(EMBEDDED, 2))
    long = Literal("so", "tˈu " * 12)
    segments = voice.segments(placeholder(0) * 50, literals=[long])
    assert len(segments) >= 50 * 12 / 16 / 2
    assert sum(segment.tokens_text.count("tˈu") for segment in segments) == 50 * 12


@given(st.text(alphabet="ab 重庆'’s[]<|>.", max_size=60))
def test_nothing_but_the_words_changes(text: str) -> None:
    entries = [Pronunciation("a", cmu="AA1"), Pronunciation("ab", ipa="æb"), CHONGQING]
    changed, literals = pronunciation.apply(text, entries, PHONES)
    assert fill_spoken(changed, literals) == text
