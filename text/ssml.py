"""A subset of SSML 1.1 as passages, each of one voice and manner: what is said, and the pause after it.

Understood: speak, p, s, break, prosody (rate, volume, pitch), say-as, sub, phoneme, voice (name), lang. Everything else
is refused, so that no instruction is lost unnoticed. Document types, and with them entities, are refused unread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn
from xml.parsers import expat

from text import prosody
from text.arpabet import misaki
from text.clean import clean
from text.errors import TextError
from text.literals import LITERAL, Literal
from text.options import AUTO, LANGUAGES
from text.passages import Manner, Passage, Script
from text.preparation import MAX_INPUT_CHARS
from text.pronunciation import Capabilities, literal
from text.say_as import say_as
from text.spans import find_spans, main_language

MAX_SSML_CHARS = 60_000
MAX_DEPTH = 32

_ATTRIBUTES = {
    "speak": {"version", "xml:lang", "xmlns", "xmlns:xsi", "xsi:schemaLocation"},
    "p": {"xml:lang"},
    "s": {"xml:lang"},
    "lang": {"xml:lang"},
    "voice": {"name", "xml:lang"},
    "prosody": {"rate", "volume", "pitch"},
    "break": {"time", "strength"},
    "say-as": {"interpret-as", "format"},
    "sub": {"alias"},
    "phoneme": {"alphabet", "ph"},
}
_REQUIRED = {
    "lang": ("xml:lang",),
    "voice": ("name",),
    "say-as": ("interpret-as",),
    "sub": ("alias",),
    "phoneme": ("alphabet", "ph"),
}
_WORDS = ("say-as", "sub", "phoneme")  # hold text only and are said as a whole
_ALPHABETS = {"ipa": "ipa", "cmu": "cmu", "x-cmu": "cmu", "x-arpabet": "cmu", "pinyin": "pinyin", "x-pinyin": "pinyin"}
_LANGUAGE_NAMES = {"cmn": "zh", "zh-hk": "yue", "zh-yue": "yue"}
_LETTER_A = re.compile(r"(?<!\S)A(?!\S)")
_TAGS = re.compile(r"<[^<>]*>")
_MAX_WORD = 2_000  # characters of an element that is said as a whole
_SAMPLE = 20_000  # characters of a document, enough to tell its language


def parse_ssml(ssml: str, capabilities: Capabilities, language: str = AUTO) -> list[Passage]:
    """The passages in order. language: in which `say-as` is read where no xml:lang says so; "auto": the document's.

    Raises TextError: invalid_ssml (with line and column), unsupported_markup, unsupported_language, unknown_phone,
    unsupported_pronunciation, invalid_pronunciation, input_empty, input_too_long, input_not_utf8, no_speakable_text.
    """
    if len(ssml) > MAX_SSML_CHARS:
        raise TextError(
            "input_too_long", f"The SSML has {len(ssml):,} characters; at most {MAX_SSML_CHARS:,} are read at once."
        )
    if re.search("[\ud800-\udfff]", ssml):
        raise TextError("input_not_utf8", "The input holds a lone surrogate, so it is not valid UTF-8 text.")
    if not ssml.strip():
        raise TextError("input_empty", "The input is empty.")
    passages = _Reader(ssml.lstrip("\ufeff"), capabilities, language).read()
    characters = sum(len(passage.text) for passage in passages)
    if characters > MAX_INPUT_CHARS:
        raise TextError(
            "input_too_long",
            f"The SSML says {characters:,} characters; at most {MAX_INPUT_CHARS:,} are spoken at once.",
        )
    if not any(passage.text for passage in passages):
        raise TextError("no_speakable_text", "The SSML has nothing that can be spoken.")
    return passages


class _Reader:
    """One document on its way through the XML parser."""

    def __init__(self, ssml: str, capabilities: Capabilities, language: str) -> None:
        self._ssml, self._capabilities, self._language = ssml, capabilities, language
        self._manners = [Manner()]  # of the elements that are open
        self._script = Script()
        self._word: _Word | None = None
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = lambda *_: self._refuse("<!DOCTYPE>")
        parser.ProcessingInstructionHandler = lambda target, _: self._refuse(f"<?{target:.40}?>")

    def read(self) -> list[Passage]:
        try:
            self._parser.Parse(self._ssml, True)
        except expat.ExpatError as error:
            reason = f"The SSML is not well-formed: {expat.ErrorString(error.code)}"
            raise _invalid(reason, error.lineno, error.offset) from None
        try:
            return self._script.end()
        except ValueError as error:
            raise self._invalid(str(error)) from None

    # -- what the parser finds -------------------------------------------------------------------------------------

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        try:
            self._check(name, attributes)
            self._manners.append(self._manner(name, attributes))
            if name == "break":
                self._script.pause(prosody.pause(attributes.get("time"), attributes.get("strength")))
            elif name in ("p", "s"):
                self._script.end_sentence()
            elif name in _WORDS:
                self._word = _Word(name, attributes)
        except ValueError as error:
            raise self._invalid(str(error)) from None

    def _end(self, name: str) -> None:
        try:
            if name in ("p", "s"):
                self._script.end_sentence()
            elif name in _WORDS and self._word is not None:
                word, self._word = self._word, None
                self._say(word)
        except ValueError as error:
            raise self._invalid(str(error)) from None
        self._manners.pop()

    def _characters(self, data: str) -> None:
        data = LITERAL.sub("", " ".join(re.split(r"\s+", data)))
        try:
            if self._word is None:
                self._script.add(self._manners[-1], data)
            else:
                self._word.add(data)
        except ValueError as error:
            raise self._invalid(str(error)) from None

    def _check(self, name: str, attributes: dict[str, str]) -> None:
        """Raises TextError unsupported_markup, and ValueError."""
        depth = len(self._manners) - 1
        if name not in _ATTRIBUTES:
            self._refuse(f"<{name:.40}>")
        if (name == "speak") != (depth == 0):
            raise ValueError("The root of SSML is speak, which stands nowhere else.")
        if depth >= MAX_DEPTH:
            raise ValueError(f"Elements are nested deeper than {MAX_DEPTH}.")
        if self._word is not None:
            raise ValueError(f"{self._word.name} holds text only, no {name}.")
        for attribute in attributes:
            if attribute not in _ATTRIBUTES[name]:
                self._refuse(f"<{name} {attribute:.40}>")
        for attribute in _REQUIRED.get(name, ()):
            if not attributes.get(attribute, "").strip():
                raise ValueError(f"{name} needs {attribute}.")

    def _manner(self, name: str, attributes: dict[str, str]) -> Manner:
        """What holds inside the element. Raises ValueError, TextError unsupported_language."""
        manner = self._manners[-1]
        if language := attributes.get("xml:lang"):
            manner = replace(manner, language=_language(language))
        if name == "voice":
            return replace(manner, voice=LITERAL.sub("", attributes["name"]))
        if name != "prosody":
            return manner
        if not attributes:
            raise ValueError("prosody needs rate, volume or pitch.")
        speed = manner.speed * prosody.rate(attributes.get("rate", "default"))
        volume = manner.volume * prosody.volume(attributes.get("volume", "default"))
        pitch = manner.pitch * prosody.pitch(attributes.get("pitch", "default"))
        prosody.check_product(speed, volume, pitch)
        return replace(manner, speed=speed, volume=volume, pitch=pitch)

    # -- what becomes of it ----------------------------------------------------------------------------------------

    def _say(self, word: _Word) -> None:
        """Raises ValueError, and TextError for kinds and sounds that there are not."""
        if word.name == "sub":
            self._script.add(self._manners[-1], LITERAL.sub("", word.attributes["alias"]), apart=True)
        elif word.name == "phoneme":
            alphabet = _ALPHABETS.get(word.attributes["alphabet"])
            if alphabet is None:
                self._refuse(f"<phoneme alphabet={word.attributes['alphabet']:.40}>")
            sounds = word.attributes["ph"]
            said = literal(word.spoken or clean(sounds), alphabet, sounds, self._capabilities)
            self._script.add_literal(self._manners[-1], said)
        else:
            self._say_as(word.spoken, word.attributes["interpret-as"], word.attributes.get("format"))

    def _say_as(self, content: str, kind: str, form: str | None) -> None:
        language = self._manners[-1].language or self._document_language
        try:
            spoken = say_as(content, kind, form, language)
        except LookupError:
            self._refuse(f"<say-as interpret-as={kind:.40}> in {language}")
        if not self._capabilities.phonemes:
            self._script.add(self._manners[-1], spoken, apart=True)
            return
        for i, part in enumerate(_LETTER_A.split(spoken)):
            if i:  # in a row of letters it is no article, as a phonemizer takes it
                self._script.add_literal(self._manners[-1], Literal("A", misaki(("EY1",))))
            self._script.add(self._manners[-1], part.strip(), apart=True)

    @cached_property
    def _document_language(self) -> str:
        if self._language != AUTO:
            return self._language
        if self._capabilities.phonemes:
            return "en"
        return main_language(find_spans(clean(_TAGS.sub(" ", self._ssml[:_SAMPLE]))))

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refuse(self, markup: str) -> NoReturn:
        position = f"line {self._parser.CurrentLineNumber}, column {self._parser.CurrentColumnNumber + 1}"
        raise TextError("unsupported_markup", f"{markup} is not supported in SSML here ({position}).")

    def _invalid(self, message: str) -> TextError:
        return _invalid(message.rstrip("."), self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber)


@dataclass
class _Word:
    """An element that is said as a whole, while its text arrives."""

    name: str
    attributes: dict[str, str]
    content: str = ""

    @property
    def spoken(self) -> str:
        return clean(self.content)

    def add(self, text: str) -> None:
        """Raises ValueError."""
        self.content += text
        if len(self.content) > _MAX_WORD:
            raise ValueError(f"{self.name} holds at most {_MAX_WORD:,} characters.")


def _invalid(message: str, line: int, column: int) -> TextError:
    return TextError("invalid_ssml", f"{message} (line {line}, column {column + 1}).")


def _language(name: str) -> str:
    """ "en-US" → "en", "zh-HK" → "yue". Raises TextError unsupported_language."""
    code = name.strip().lower()
    language = _LANGUAGE_NAMES.get(code) or _LANGUAGE_NAMES.get(code.split("-")[0]) or code.split("-")[0]
    if language not in LANGUAGES:
        raise TextError("unsupported_language", f"xml:lang is one of {', '.join(LANGUAGES)}, not {name:.40}.")
    return language
