"""Every value of every option does what its line in the table says; what is no value is refused."""

from __future__ import annotations

import pytest

from models.config import EMBEDDED, load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from text import TextError, TextFrontend, TextOptions
from text.options import LANGUAGES, MODES


@pytest.fixture(scope="module")
def frontend() -> TextFrontend:
    return TextFrontend.for_model(load_config(golden(2).dir), Tokenizer.load(golden(2).dir, 2))


def spoken(frontend: TextFrontend, text: str, **options: str) -> str:
    return "".join(segment.tokens_text for segment in frontend.segments(text, TextOptions(**options)))  # type: ignore[arg-type]


URL, MAIL, PHONE = "See https://example.org/a/b now.", "Ask jo@example.com now.", "Dial 020-7946-0958 now."
CODE, MARKS, MATHS = (
    "One.\n```\nx = 1\n```\nTwo.",
    "# Head\n**bold** [link](http://a.org) `code`",
    "So $x^2 + 1$ it is.",
)
SEVEN_DIGITS = "zwei Millionen dreihundertfünfundvierzigtausendsechshundertachtundsiebzig"
READINGS = {
    ("normalization", "auto"): ("I have 5 km, ¾.", "I have five kilometers, three quarters."),
    ("normalization", "on"): ("I have 5 km.", "I have five kilometers."),
    ("normalization", "off"): ("I have 5 km & [sigh].", "I have 5 km & [sigh]."),
    ("url", "read"): (URL, "See example dot org slash a slash b now."),
    ("url", "domain"): (URL, "See example dot org now."),
    ("url", "name"): (URL, "See link now."),
    ("url", "skip"): (URL, "See now."),
    ("email", "read"): (MAIL, "Ask jo at example dot com now."),
    ("email", "name"): (MAIL, "Ask e-mail address now."),
    ("email", "skip"): (MAIL, "Ask now."),
    ("phone", "digits"): (PHONE, "Dial zero two zero, seven nine four six, zero nine five eight now."),
    ("phone", "number"): ("Die Nummer ist 0171 2345678.", "Die Nummer ist null eins sieben eins " + SEVEN_DIGITS + "."),
    ("phone", "skip"): (PHONE, "Dial now."),
    ("unit", "expand"): ("Run 5 km.", "Run five kilometers."),
    ("unit", "keep"): ("Run 5 km.", "Run five km."),
    ("markdown", "strip"): (MARKS, "Head. bold link code."),
    ("markdown", "keep"): ("[a](b)", "a, b."),
    ("emoji", "skip"): ("Hi 😀!", "Hi!"),
    ("emoji", "name"): ("Hi 😀!", "Hi, grinning face!"),
    ("code", "skip"): (CODE, "One. Two."),
    ("code", "read"): (CODE, "One. x equals one. Two."),
    ("math", "read"): (MATHS, "So x squared plus one it is."),
    ("math", "skip"): (MATHS, "So it is."),
}


def test_each_value_of_the_table_is_tested() -> None:
    assert set(READINGS) == {(option, value) for option, values in MODES.items() for value in values}


@pytest.mark.parametrize(("option", "value"), READINGS)
def test_value(frontend: TextFrontend, option: str, value: str) -> None:
    text, expected = READINGS[option, value]
    assert spoken(frontend, text, **{option: value}) == expected


def test_the_first_value_is_the_default() -> None:
    assert all(getattr(TextOptions(), option) == next(iter(values)) for option, values in MODES.items())


@pytest.mark.parametrize("option", MODES)
def test_another_value_is_refused(option: str) -> None:
    with pytest.raises(TextError) as caught:
        TextOptions(**{option: "x" * 1000})  # type: ignore[arg-type]
    assert caught.value.code == "invalid_value" and option in caught.value.message and len(caught.value.message) < 200


@pytest.mark.parametrize("language", ["pt", "EN", "", "klingon"])
def test_another_language_is_refused(language: str) -> None:
    with pytest.raises(TextError) as caught:
        TextOptions(language=language)
    assert caught.value.code == "unsupported_language"


# The same text, read as each language.
FIVE = {
    "zh": "五", "yue": "五", "ja": "五", "ko": "오", "en": "five",
    "de": "fünf", "es": "cinco", "fr": "cinq", "it": "cinque", "ru": "пять",
}  # fmt: skip


def test_every_language_can_be_asked_for(frontend: TextFrontend) -> None:
    assert set(FIVE) == set(LANGUAGES)
    for language, word in FIVE.items():
        segment = frontend.segments("OK 5", TextOptions(language=language))[0]
        assert segment.language == language and word in segment.text
    assert "五" in spoken(frontend, "东京5", language="ja") and "五" in spoken(frontend, "我有5个", language="de")


def test_a_language_without_rules_is_left_to_the_model_or_refused(frontend: TextFrontend) -> None:
    text = "Os meninos não estão em casa, e são 5."
    analysis = frontend.analyse(text)
    assert analysis.segments[0].text == text
    assert [warning.code for warning in analysis.warnings] == ["language_not_normalised"]
    with pytest.raises(TextError) as caught:
        frontend.segments(text, TextOptions(normalization="on"))
    assert caught.value.code == "unsupported_language"


def test_emoji_are_named_in_the_language_around_them(frontend: TextFrontend) -> None:
    assert spoken(frontend, "今天好👍", emoji="name") == "今天好，拇指向上。"
    assert "широко улыбается" in spoken(frontend, "Привет 😀", emoji="name")


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [("language", "zh", "unsupported_language"), ("normalization", "off", "unsupported_parameter")],
)
def test_a_voice_of_phonemes_refuses_what_it_cannot_honour(option: str, value: str, code: str) -> None:
    embedded = TextFrontend.for_model(load_config(EMBEDDED), Tokenizer.load(EMBEDDED, 2))
    with pytest.raises(TextError) as caught:
        embedded.segments("Hello.", TextOptions(**{option: value}))  # type: ignore[arg-type]
    assert caught.value.code == code
    assert embedded.segments(URL, TextOptions(language="en", url="domain"))[0].text == "See example dot org now."
