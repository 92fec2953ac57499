"""SSML: what is understood becomes passages, everything else is refused by name, nothing that is said is lost."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import EMBEDDED, load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from tests.text.capabilities import PHONEMES, PHONES, WORDS
from tests.text.stalls import longest_stall
from text import TextError, TextFrontend, TextOptions
from text.literals import fill_spoken, fill_tokens
from text.passages import MAX_PASSAGES, Passage
from text.pronunciation import Capabilities
from text.ssml import MAX_DEPTH, MAX_SSML_CHARS, parse_ssml


def passages(inside: str, model: Capabilities = PHONES, attributes: str = "") -> list[Passage]:
    return parse_ssml(f"<speak{attributes}>{inside}</speak>", model)


def texts(inside: str, model: Capabilities = PHONES) -> list[str]:
    return [passage.text for passage in passages(inside, model)]


def test_plain_text_is_one_passage_as_it_stands() -> None:
    head = '<?xml version="1.0" encoding="utf-16"?>\n<speak version="1.1" xml:lang="en-GB">\n'
    (passage,) = parse_ssml(head + "  Fish &amp; <![CDATA[<chips>]]> &#x4F60;<!-- no --></speak>\n", PHONES)
    assert passage == Passage("Fish & <chips> 你", (), None, 1.0, 1.0, 1.0, "en", 0.0)


PAUSES = {
    "<break/>": 0.75,
    '<break strength="none"/>': 0.0,
    '<break strength="x-strong"/>': 1.25,
    '<break time="250ms"/>': 0.25,
    '<break time="1.5s" strength="weak"/>': 1.5,
    '<break time="1s"/> <break time="2s"/>': 3.0,
    '<break time="1s"/> ... <break time="2s"/>': 3.0,
}


@pytest.mark.parametrize("markup", PAUSES)
def test_a_break_is_silence_behind_what_was_said(markup: str) -> None:
    first, second = passages(f"one {markup} two") if PAUSES[markup] else (*passages(f"one {markup}"), *passages("two"))
    assert (first.text, first.break_after_s, second.text, second.break_after_s) == ("one", PAUSES[markup], "two", 0.0)


def test_a_document_may_begin_and_end_with_silence() -> None:
    first, second = passages('<break time="1s"/>word<break time="2s"/>')
    assert (first.text, first.break_after_s, second.text, second.break_after_s) == ("", 1.0, "word", 2.0)


PROSODY = {
    'rate="slow"': (0.75, 1.0, 1.0),
    'rate="150%"': (1.5, 1.0, 1.0),
    'rate="-20%"': (0.8, 1.0, 1.0),
    'rate="1.25"': (1.25, 1.0, 1.0),
    'volume="silent"': (1.0, 0.0, 1.0),
    'volume="+6dB"': (1.0, 1.9953, 1.0),
    'volume="-50%"': (1.0, 0.5, 1.0),
    'pitch="+12st"': (1.0, 1.0, 2.0),
    'pitch="-10%"': (1.0, 1.0, 0.9),
    'rate="fast" pitch="high" volume="soft"': (1.5, 0.5, 1.15),
}


@pytest.mark.parametrize("attributes", PROSODY)
def test_prosody_becomes_factors(attributes: str) -> None:
    (passage,) = passages(f"<prosody {attributes}>word</prosody>")
    assert (passage.speed, passage.volume, passage.pitch) == pytest.approx(PROSODY[attributes], abs=1e-3)


def test_manners_nest_and_end_with_their_element() -> None:
    inside = (
        'a <prosody rate="200%">b <voice name="eve">c <prosody rate="50%" pitch="+10%">d</prosody></voice> e</prosody>'
        ' <lang xml:lang="fr-CA">f</lang> g'
    )
    found = [(p.text, p.voice, p.speed, p.pitch, p.language) for p in passages(inside, attributes=' xml:lang="en"')]
    assert found == [
        ("a", None, 1.0, 1.0, "en"),
        ("b", None, 2.0, 1.0, "en"),
        ("c", "eve", 2.0, 1.0, "en"),
        ("d", "eve", 1.0, 1.1, "en"),
        ("e", None, 2.0, 1.0, "en"),
        ("f", None, 1.0, 1.0, "fr"),
        ("g", None, 1.0, 1.0, "en"),
    ]


def test_a_mark_stays_with_the_word_in_front_of_it() -> None:
    assert texts(
        '“<prosody rate="slow">Really</prosody>?” <voice name="eve">Yes</voice>, he <voice name="x">said</voice>.'
    ) == [
        "Really?”",
        "Yes,",
        "he",
        "said.",
    ]


def test_words_of_their_own_do_not_melt_with_their_neighbours() -> None:
    assert texts('H<sub alias="two">2</sub>O, (<sub alias="C B">cb</sub>)') == ["H two O, (C B)"]
    assert texts('我<sub alias="世界">W</sub>好') == ["我世界好"]
    assert texts('it is<say-as interpret-as="unit">-5 °C</say-as>here') == ["it is -5 °C here"]


@pytest.fixture(scope="module")
def words() -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(3).dir), Tokenizer.load(golden(3).dir, 3))


@pytest.fixture(scope="module")
def phonemes() -> TextFrontend:
    return TextFrontend.for_model(load_config(EMBEDDED), Tokenizer.load(EMBEDDED, 2))


def heard(frontend: TextFrontend, inside: str, language: str = "") -> str:
    """What the model reads, all passages and segments in one."""
    attributes = f' xml:lang="{language}"' if language else ""
    read = []
    for passage in passages(inside, frontend.capabilities, attributes):
        options = replace(TextOptions(), language=passage.language or "auto")
        read += [segment.tokens_text for segment in frontend.segments(passage.text, options, passage.literals)]
    return "".join(read).strip()


ENGLISH = {
    "characters": ("A-12b", "A dash one two B"),
    "spell-out": ("R2D2", "R two D two"),
    "digits": ("2026", "two zero two six"),
    "cardinal": ("-2,026.5", "minus two thousand twenty-six point five"),
    "ordinal": ("21st", "twenty-first"),
    "date": ("2026-03-09", "March ninth, twenty twenty-six"),
    'date" format="dmy': ("09.03.2026", "March ninth, twenty twenty-six"),
    'date" format="md': ("3/9", "March ninth"),
    'date" format="ymd': ("20260309", "March ninth, twenty twenty-six"),
    'date" format="my': ("032026", "March twenty twenty-six"),
    "time": ("2:30pm", "two thirty PM"),
    "telephone": ("+1 (781) 771-0042", "plus one, seven eight one, seven seven one, zero zero four two"),
    "currency": ("USD 12.50", "twelve dollars and fifty cents"),
    "unit": ("5 km", "five kilometers"),
    "fraction": ("3/4", "three quarters"),
}


@pytest.mark.parametrize("kind", ENGLISH)
def test_say_as_in_english(words: TextFrontend, kind: str) -> None:
    written, spoken = ENGLISH[kind]
    assert heard(words, f'He said<say-as interpret-as="{kind}">{written}</say-as>to me.') == f"He said {spoken} to me."


CHINESE = {
    "characters": ("A-12", "A杠一二"),
    "digits": ("2026", "二零二六"),
    "cardinal": ("2,026", "两千零二十六"),
    "ordinal": ("3", "第三"),
    "date": ("2026-03-09", "二零二六年三月九日"),
    "time": ("2:30pm", "十四点三十分"),
    "telephone": ("+86 138-1234", "加八六，幺三八，幺二三四"),
    "fraction": ("3/4", "四分之三"),
}


@pytest.mark.parametrize("kind", CHINESE)
def test_say_as_in_chinese(words: TextFrontend, kind: str) -> None:
    written, spoken = CHINESE[kind]
    assert heard(words, f'这是<say-as interpret-as="{kind}">{written}</say-as>吗？') == f"这是{spoken}吗？"


OTHERS = {
    "de": ("eins zwei null", "eintausendzweihundertvierunddreißig Komma fünf", "März zweitausendsechsundzwanzig"),
    "es": ("uno dos cero", "mil doscientos treinta y cuatro coma cinco", "nueve de marzo"),
    "fr": ("un deux zéro", "mille deux cent trente-quatre virgule cinq", "neuf mars"),
    "it": ("uno due zero", "milleduecentotrentaquattro virgola cinque", "nove marzo"),
    "ru": ("один два ноль", "тысяча двести тридцать", "девятого марта"),
    "ko": ("일이공", "천이백삼십사", "삼월 구일"),
    "yue": ("一二零", "一千二百三十四", "三月九日"),
}


@pytest.mark.parametrize("language", OTHERS)
def test_say_as_in_other_languages(words: TextFrontend, language: str) -> None:
    inside = (
        '<say-as interpret-as="digits">120</say-as>; <say-as interpret-as="cardinal">1,234.5</say-as>; '
        '<say-as interpret-as="date">2026-03-09</say-as>'
    )
    read = heard(words, inside, language)
    assert all(expected in read for expected in OTHERS[language]), read


@pytest.mark.parametrize(
    ("around", "digits"),
    [
        ("Он живёт там, номер", "один два"),
        ("佢哋喺呢度嘅房间", "一二"),
        ("部屋の番号は", "イチ ニ"),
        ("Das ist die Nummer", "eins zwei"),
    ],
)
def test_say_as_is_read_in_the_language_of_the_document(words: TextFrontend, around: str, digits: str) -> None:
    assert digits in heard(words, f'{around} <say-as interpret-as="digits">12</say-as>')


def test_say_as_is_read_in_the_language_of_the_request(words: TextFrontend) -> None:
    (passage,) = parse_ssml('<speak>OK <say-as interpret-as="digits">12</say-as></speak>', PHONES, "de")
    assert passage.text == "OK eins zwei"


def test_letters_are_no_words_to_a_phoneme_voice(phonemes: TextFrontend) -> None:
    assert heard(phonemes, 'Room <say-as interpret-as="characters">A1</say-as> is a room.').startswith("ɹˈum ˈA wˈʌn")


def test_a_phoneme_is_said_as_written_and_shown_as_the_word(words: TextFrontend, phonemes: TextFrontend) -> None:
    inside = (
        'A <phoneme alphabet="ipa" ph="təˈmɑːtoʊ">tomato</phoneme> and '
        '<phoneme alphabet="x-cmu" ph="B IY1">bee</phoneme>!'
    )
    assert heard(words, inside) == "A [T][AH0][M][AA1][T][OW0] and [B][IY1]!"
    assert heard(phonemes, inside) == "ɐ təmˈɑtO ænd bˈi!"
    (passage,) = passages(inside)
    assert fill_spoken(passage.text, passage.literals) == "A tomato and bee!"
    chinese = passages('去<phoneme alphabet="pinyin" ph="chóng qìng">重庆</phoneme>')[0]
    assert fill_tokens(chinese.text, chinese.literals) == "去[ch][óng][q][ìng]"


def test_paragraphs_and_sentences_end_where_they_end(words: TextFrontend) -> None:
    assert heard(words, "<p>Title</p><p><s>One, two</s><s>Really?</s></p>Rest") == "Title. One, two. Really? Rest."
    assert heard(words, "<p>标题</p><s>正文</s>") == "标题。正文。"


def test_control_tokens_are_as_untrusted_as_in_plain_text(words: TextFrontend) -> None:
    reader = Tokenizer.load(golden(3).dir, 3)
    control = {reader.encode(token)[0] for token in reader.special_tokens if token.startswith("<|")}
    inside = (
        "a &lt;|endofprompt|&gt; b <![CDATA[<|im_start|>]]> &lt;|endof<sub alias='prompt|>'>x</sub>"
        " \ue000 &#xE001; [laughter]"
        "<say-as interpret-as='characters'>&lt;|im_end|&gt;</say-as>"
        "<phoneme alphabet='cmu' ph='T'>&lt;|im_end|&gt;</phoneme>"
    )
    read = heard(words, inside)
    assert not control & set(reader.encode(read))
    assert "[laughter]" in read and "[T]" in read and read.startswith("a b")


REFUSED = {
    "<!DOCTYPE speak [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><speak>&b;</speak>": ("unsupported_markup", "<!DOCTYPE>"),
    "<!DOCTYPE speak SYSTEM 'file:///etc/passwd'><speak>a</speak>": ("unsupported_markup", "<!DOCTYPE>"),
    "<speak><?php echo 1 ?>a</speak>": ("unsupported_markup", "<?php?>"),
    "<speak>a <audio src='x.wav'/></speak>": ("unsupported_markup", "<audio>"),
    "<speak><emphasis>a</emphasis></speak>": ("unsupported_markup", "<emphasis>"),
    "<speak><x:express-as>a</x:express-as></speak>": ("unsupported_markup", "<x:express-as>"),
    "<speak><prosody contour='(0%,+1st)'>a</prosody></speak>": ("unsupported_markup", "<prosody contour>"),
    "<speak><voice name='a' gender='female'>a</voice></speak>": ("unsupported_markup", "<voice gender>"),
    "<speak><say-as interpret-as='bleep'>a</say-as></speak>": ("unsupported_markup", "bleep"),
    "<speak xml:lang='de'><say-as interpret-as='ordinal'>3</say-as></speak>": ("unsupported_markup", "ordinal"),
    "<speak><phoneme alphabet='x-sampa' ph='a'>a</phoneme></speak>": ("unsupported_markup", "x-sampa"),
    "<speak xml:lang='pt'>a</speak>": ("unsupported_language", "pt"),
    "just words": ("invalid_ssml", "line 1, column 1"),
    "<speak>\n <p>a</s></speak>": ("invalid_ssml", "line 2, column 8"),
    "<speak>a": ("invalid_ssml", "line 1, column 9"),
    "<speak>&nbsp;</speak>": ("invalid_ssml", "undefined entity (line 1, column 8)"),
    "<speak>a & b</speak>": ("invalid_ssml", "line 1, column 11"),
    "<speak>a</speak><speak>b</speak>": ("invalid_ssml", "junk"),
    "<p>a</p>": ("invalid_ssml", "root"),
    "<speak><speak>a</speak></speak>": ("invalid_ssml", "root"),
    "<speak><break time='1h'/>a</speak>": ("invalid_ssml", "time"),
    "<speak><break time='11s'/>a</speak>": ("invalid_ssml", "10s (line 1, column 8)"),
    "<speak><break time='-1s'/>a</speak>": ("invalid_ssml", "time"),
    "<speak><break strength='huge'/>a</speak>": ("invalid_ssml", "strength"),
    "<speak><prosody rate='500%'>a</prosody></speak>": ("invalid_ssml", "rate"),
    "<speak><prosody rate='nan'>a</prosody></speak>": ("invalid_ssml", "rate"),
    "<speak><prosody volume='70'>a</prosody></speak>": ("invalid_ssml", "volume"),
    "<speak><prosody volume='+13dB'>a</prosody></speak>": ("invalid_ssml", "volume"),
    "<speak><prosody pitch='+13st'>a</prosody></speak>": ("invalid_ssml", "pitch"),
    "<speak><prosody>a</prosody></speak>": ("invalid_ssml", "prosody needs"),
    "<speak><prosody rate='4'><prosody rate='2'>a</prosody></prosody></speak>": ("invalid_ssml", "800%"),
    "<speak><voice>a</voice></speak>": ("invalid_ssml", "voice needs name"),
    "<speak><sub alias=' '>a</sub></speak>": ("invalid_ssml", "sub needs alias"),
    "<speak><phoneme ph='a'>a</phoneme></speak>": ("invalid_ssml", "phoneme needs alphabet"),
    "<speak><sub alias='b'>a<break/></sub></speak>": ("invalid_ssml", "sub holds text only"),
    "<speak><say-as interpret-as='date'>2026-13-09</say-as></speak>": ("invalid_ssml", "2026-13-09"),
    "<speak><say-as interpret-as='date' format='q'>1</say-as></speak>": ("invalid_ssml", "format"),
    "<speak><say-as interpret-as='time' format='hms12'>1:00</say-as></speak>": ("invalid_ssml", "takes no format"),
    "<speak><say-as interpret-as='telephone' format='1'>1</say-as></speak>": ("invalid_ssml", "takes no format"),
    "<speak><say-as interpret-as='date' format='ymd'>2026030</say-as></speak>": ("invalid_ssml", "2026030"),
    "<speak><sub alias='b'>a{}</sub></speak>".format("\u0301" * 20_000 + "\u0316" * 20_000): ("invalid_ssml", "2,000"),
    f"<speak><say-as interpret-as='digits'>{'1' * 2_001}</say-as></speak>": ("invalid_ssml", "2,000"),
    "<speak><say-as interpret-as='time'>25:00</say-as></speak>": ("invalid_ssml", "25:00"),
    "<speak><say-as interpret-as='cardinal'>many</say-as></speak>": ("invalid_ssml", "many"),
    "<speak><say-as interpret-as='telephone'>call me</say-as></speak>": ("invalid_ssml", "call me"),
    "<speak><phoneme alphabet='cmu' ph='QQ'>a</phoneme></speak>": ("unknown_phone", "QQ"),
    "<speak/>": ("no_speakable_text", "."),
    "<speak> … <break/></speak>": ("no_speakable_text", "."),
    " ": ("input_empty", "."),
    "<speak>\ud83d</speak>": ("input_not_utf8", "."),
    f"<speak>{'<p>' * MAX_DEPTH}a{'</p>' * MAX_DEPTH}</speak>": ("invalid_ssml", f"deeper than {MAX_DEPTH}"),
    f"<speak>{'a<break/>' * (MAX_PASSAGES + 1)}</speak>": ("invalid_ssml", "passages"),
    "<speak>{}</speak>".format("<break time='10s'/>" * 61): ("invalid_ssml", "600 seconds"),
    f"<speak>{'a' * 20_001}</speak>": ("input_too_long", "20,000"),
    f"<speak>{' ' * MAX_SSML_CHARS}</speak>": ("input_too_long", "60,000"),
}


@pytest.mark.parametrize(
    "document", REFUSED, ids=[document[:60].encode("ascii", "replace").decode() for document in REFUSED]
)
def test_what_is_not_understood_is_refused_by_name(document: str) -> None:
    code, told = REFUSED[document]
    with pytest.raises(TextError) as caught:
        assert longest_stall(lambda: parse_ssml(document, PHONES)) < 0.5
    assert caught.value.code == code and told in caught.value.message and caught.value.message.endswith(".")


def test_sounds_need_a_model_that_can_be_told_them() -> None:
    for model, alphabet in ((WORDS, "ipa"), (WORDS, "pinyin"), (PHONEMES, "pinyin")):
        with pytest.raises(TextError) as caught:
            passages(f'<phoneme alphabet="{alphabet}" ph="a">a</phoneme>', model)
        assert caught.value.code == "unsupported_pronunciation"


@pytest.mark.parametrize(
    "piece",
    [
        "<say-as interpret-as='digits'>1</say-as>",
        "<phoneme alphabet='cmu' ph='T'>t</phoneme>",
        "<s>a</s>",
        "<prosody rate='slow'>…</prosody>",
        "&amp;",
        "<break time='0s'/>",
    ],
)
def test_the_longest_document_takes_a_moment(piece: str) -> None:
    document = f"<speak>{piece * ((MAX_SSML_CHARS - 20) // len(piece))}a</speak>"
    began = time.process_time()
    try:
        parse_ssml(document, PHONES)
    except TextError as error:
        assert error.code == "input_too_long"
    assert time.process_time() - began < 3


_OPENING = ["<p>", "<s>", "<prosody rate='fast'>", "<sub alias='four'>", "<voice name='v'>"]
_DIGITS = "<say-as interpret-as='digits'>"
_CLOSING = ["</p>", "</s>", "</prosody>", "</sub>", "</voice>", "</say-as>"]
_PIECES = st.sampled_from([*_OPENING, _DIGITS, *_CLOSING, "<break/>", "one", " two. ", "三", ", ", "&lt;"])


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=12))
def test_any_markup_gives_every_word_or_a_text_error(pieces: list[str]) -> None:
    try:
        said = " ".join(texts("".join(pieces)))
    except TextError:
        return
    if "<sub alias='four'>" not in pieces:
        for word in ("one", "two", "三"):
            assert said.count(word) == pieces.count(word) + pieces.count(f" {word}. ")
