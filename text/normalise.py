"""A cleaned text put into words: entities set aside, each span read by the rules of its language, entities put back."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from text import addresses, chinese
from text.english import read_english
from text.english_numbers import bind_numbers, decimal
from text.entities import TAG, Entity, put_back, set_aside, set_tags_aside
from text.errors import TextError
from text.european import read_european, read_number
from text.formulas import read_formula
from text.japanese import read_japanese
from text.korean import read_korean
from text.korean import read_number as read_korean_number
from text.number_locales import LOCALES
from text.options import LANGUAGES, TextOptions
from text.spans import Span, find_spans

_HEAD = re.compile(r"[\s,;:.!?，。！？；：、…]*")
_TAIL = " ,;:，；：、"
_ISO_TIME = re.compile(r"(?<![\w-])(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?(Z?)(?!\w)")
# Where an entity was left out, its spaces are not.
_LEFT_OUT = re.compile(r" +( |[,.;!?](?:\s|$))")

READERS: dict[str, Callable[[str], str]] = {
    "zh": chinese.read_chinese,
    "yue": chinese.read_chinese,
    "ja": read_japanese,
    "ko": read_korean,
    **{code: partial(read_european, language=code) for code in LOCALES},
}
_NUMBERS: dict[str, Callable[[str], str]] = {
    "zh": chinese.read_chinese,
    "yue": chinese.read_chinese,
    "en": decimal,
    "ja": read_japanese,
    "ko": read_korean_number,
    **{code: partial(read_number, language=code) for code in LOCALES},
}


@dataclass(frozen=True)
class Warning:
    """What a reader of the text should know; `code` is stable, `message` a sentence for people."""

    code: str
    message: str


def normalise(
    text: str, options: TextOptions, tags: Collection[str], *, inside: bool = False
) -> tuple[list[Span], list[Warning]]:
    """The spans of a cleaned text in words, no-break spaces inside what must not be cut, and what was left unread.

    tags: event tags of the model, which stay. inside: text stands before and behind it. Raises TextError
    unsupported_language.
    """
    warnings = unknown_tags(text, tags)
    if options.normalization == "off":
        text, entities = set_tags_aside(text, tags)
        spans = find_spans(text, options.language)
        return [Span(put_back(span.text, entities, _written), span.language) for span in spans], warnings
    text, entities = set_aside(_ISO_TIME.sub(_date_and_time, text), options, tags)
    found = find_spans(text, options.language)
    unread = {span.language for span in found} - set(LANGUAGES)
    first, last = (None, None) if inside or not found else (found[0], found[-1])
    spans = [_read(span, entities, options, at_start=span is first, at_end=span is last) for span in found]
    if unread and options.normalization == "on":
        raise TextError("unsupported_language", f"There are no rules for text in {', '.join(sorted(unread))}.")
    for code in sorted(unread):
        warnings.append(Warning("language_not_normalised", f"Text that looks like “{code}” is left to the model."))
    return spans, warnings


def read_english_text(text: str, options: TextOptions) -> str:
    """A cleaned text, all of it read as English, whatever its words are."""
    text, entities = set_aside(_ISO_TIME.sub(_date_and_time, text), options, ())
    text = put_back(read_english(text, options.phone), entities, lambda entity: _entity(entity, "en", options))
    return _LEFT_OUT.sub(r"\1", text).replace("\u00a0", " ")


def unknown_tags(text: str, tags: Collection[str]) -> list[Warning]:
    """A warning where the text holds what looks like an event tag or a phone, but is none of `tags`."""
    unknown = sorted({match[0] for match in TAG.finditer(text) if match[0] not in tags})
    if not unknown:
        return []
    return [Warning("unknown_tag", f"This model has no tag {', '.join(unknown[:5])}; what is inside is read as text.")]


def _read(span: Span, entities: list[Entity], options: TextOptions, at_start: bool, at_end: bool) -> Span:
    language = span.language
    if language not in LANGUAGES:
        return Span(put_back(span.text, entities, _written), language)
    read = partial(_read_english, phone=options.phone) if language == "en" else READERS[language]
    # The English reader takes marks at the ends of a text away.
    text = _read_inside(span.text, read, at_start) if language == "en" else read(span.text)
    text = _LEFT_OUT.sub(r"\1", put_back(text, entities, lambda entity: _entity(entity, language, options)))
    if language in ("zh", "yue"):
        text = chinese.tidy_chinese(text, ends=at_end)
    return Span(text, language)


def _read_english(text: str, phone: str) -> str:
    return bind_numbers(read_english(text, phone))


def _read_inside(text: str, read: Callable[[str], str], at_start: bool) -> str:
    """`read(text)` with the spaces and marks at both ends kept, as they part it from its neighbours."""
    head = _HEAD.match(text)[0]  # type: ignore[index]
    end = len(text.rstrip(_TAIL))
    if end <= len(head):
        return text
    return ("" if at_start else head) + read(text[len(head) : end]) + text[end:]


def _date_and_time(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}{' UTC' if match[3] else ''}"


def _written(entity: Entity) -> str:
    return entity.written


def _entity(entity: Entity, language: str, options: TextOptions) -> str:
    if entity.kind == "url":
        return addresses.read_url(entity.written, language, options.url)
    if entity.kind == "email":
        return addresses.read_email(entity.written, language, options.email)
    if entity.kind == "phone":
        return addresses.read_phone(entity.written, language, options.phone)
    if entity.kind == "digits":
        return addresses.read_phone(entity.written, language, "digits")
    if entity.kind == "formula":
        return "" if options.math == "skip" else read_formula(entity.written, language, _NUMBERS[language])
    return entity.written
