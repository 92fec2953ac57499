"""Every value of every option does what its line in the table says; what is no value is refused."""

from __future__ import annotations

import pytest

from models.config import EMBEDDED, load_config
from models.tokenizer import Tokenizer
from tests.golden import golden
from tests.text.stalls import longest_stall
from text import TextError, TextFrontend, TextOptions
from text.entities import set_aside
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


ALSO = [
    ("phone", "number", "Call 555-0199.", "Call five hundred fifty-five to zero one nine nine."),
    ("phone", "skip", "Call 555-0199 now.", "Call now."),
    ("unit", "keep", "Es sind 3 Std. und 5 кг.", "Es sind drei Std. und fünf кг."),
    ("unit", "keep", "Осталось 5 км и 5 минут.", "Осталось пять км и пять минут."),
    ("unit", "keep", "今天用3 mAh", "今天用三mAh。"),
    ("math", "skip", "Open C:\\Users\\name now.", "Open C: Users name now."),
    ("math", "skip", "So \\alpha and \\frac{1}{2} and \\foo{x} go.", "So and and go."),
    ("url", "skip", "See https://münchen.de/größe now", "See now."),
    ("url", "name", "See münchen.de now", "See link now."),
    ("url", "skip", "访问https://example.com查看", "访问查看。"),
    ("email", "skip", "Ask müller@example.de now", "Ask now."),
    ("phone", "skip", "Call +44 (0)20 7946 0958 or +442079460958 or +86 13800138000 now.", "Call or or now."),
]


@pytest.mark.parametrize(("option", "value", "text", "expected"), ALSO)
def test_a_value_holds_for_every_shape_of_what_it_is_about(
    frontend: TextFrontend, option: str, value: str, text: str, expected: str
) -> None:
    assert spoken(frontend, text, **{option: value}) == expected


def test_names_of_emoji_make_no_text_longer_than_may_be_spoken(frontend: TextFrontend) -> None:
    with pytest.raises(TextError) as caught:
        frontend.segments("👨‍👩‍👧‍👦" * 2_800, TextOptions(language="en", emoji="name"))
    assert caught.value.code == "input_too_long"


def test_long_numbers_of_telephones_are_looked_for_in_linear_time() -> None:
    text = " +1234567890123456789012345678a" * 640
    assert longest_stall(lambda: set_aside(text, TextOptions(), ())) < 0.5


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
