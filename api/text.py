"""`POST /v1/text/normalize`: how a text would be read, without speaking it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from api.bodies import wish_of
from api.errors import ApiError
from api.schema import (
    MAX_DICTIONARIES,
    MAX_PRONUNCIATIONS,
    Fields,
    NormalizationBody,
    PronunciationBody,
    SpokenBody,
    json_schema,
    modes_of,
    read_body,
)
from api.synthesis import Speaker
from api.wish import SpeechWish, check_wish
from text.errors import TextError
from text.frontend import Analysis, TextFrontend
from text.options import AUTO, TextOptions
from text.passages import Passage
from text.ssml import parse_ssml

# A passage without a word, between others, is a pause at most.
_WORDLESS = ("input_empty", "no_speakable_text")


class TextBody(Fields):
    """The fields of `POST /v1/audio/speech` that decide how its text is read."""

    input: str = Field(description="The text, or SSML.")
    input_type: str = Field("text", description="text or ssml.")
    language: str = Field(AUTO, description="auto, zh, en, ja, ko, yue, de, es, fr, it or ru.")
    text_normalization: str = Field("auto", description=modes_of("normalization"))
    normalization_options: NormalizationBody | None = None
    pronunciation: list[PronunciationBody] | None = Field(None, max_length=MAX_PRONUNCIATIONS)
    pronunciation_dictionary_ids: list[str] | None = Field(None, max_length=MAX_DICTIONARIES)


class NormalizedSegment(BaseModel):
    text: str = Field(description="One stretch of speech as a person reads it.")
    model_text: str = Field(description="The same as the model's tokenizer gets it.")
    tokens: int = Field(description="How many tokens that is.")
    language: str
    passage: int = Field(description="The index of its passage.")


class NormalizedPassage(BaseModel):
    """What is said in one manner; a plain text is one."""

    voice: str | None = Field(default=None, description="As SSML names it; none: that of the request.")
    speed: float = 1.0
    volume: float = Field(default=1.0, description="Factor of the amplitude.")
    pitch: float = 1.0
    break_after_s: float = Field(default=0.0, description="Seconds of silence behind it.")


class ReadingWarning(BaseModel):
    code: str
    message: str


class NormalizedText(BaseModel):
    """How a text is read."""

    text: str = Field(description="All of it, as a person reads it.")
    segments: list[NormalizedSegment]
    passages: list[NormalizedPassage]
    warnings: list[ReadingWarning]


def router(speaker: Speaker) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/text/normalize",
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": json_schema(TextBody)}}}
        },
    )
    async def normalize(request: Request) -> NormalizedText:
        """How the text of a speech request would be read: words, segments, tokens, and what was left out."""
        body = await read_body(request, TextBody)
        wish = wish_of(SpokenBody(**body.model_dump(exclude_none=True)), stream=False)
        check_wish(wish, await speaker.backend.describe())
        return await asyncio.to_thread(_normalized, speaker, wish)

    return routes


@dataclass(frozen=True)
class _Read:
    passage: NormalizedPassage
    analysis: Analysis | None


def _normalized(speaker: Speaker, wish: SpeechWish) -> NormalizedText:
    """Raises ApiError, TextError, RequestError."""
    read = list(_read(speaker.backend.frontend, _options(speaker, wish), wish))
    analyses = [(index, part.analysis) for index, part in enumerate(read) if part.analysis]
    if not analyses:
        raise TextError("no_speakable_text", "The input has nothing that can be spoken.")
    warnings = dict.fromkeys(warning for _, analysis in analyses for warning in analysis.warnings)
    return NormalizedText(
        text=" ".join(analysis.text for _, analysis in analyses),
        segments=[
            NormalizedSegment(
                text=segment.text,
                model_text=segment.tokens_text,
                tokens=tokens,
                language=segment.language,
                passage=index,
            )
            for index, analysis in analyses
            for segment, tokens in zip(analysis.segments, analysis.tokens, strict=True)
        ],
        passages=[part.passage for part in read],
        warnings=[ReadingWarning(code=warning.code, message=warning.message) for warning in warnings],
    )


def _options(speaker: Speaker, wish: SpeechWish) -> TextOptions:
    """With the request's language and the entries of its dictionaries. Raises ApiError, RequestError."""
    if wish.dictionaries and speaker.dictionaries is None:
        message = "This server keeps no pronunciation dictionaries."
        raise ApiError(400, "unsupported_parameter", message, "pronunciation_dictionary_ids")
    stored = [speaker.dictionaries.get(name) for name in wish.dictionaries] if speaker.dictionaries else []
    entries = tuple(chain(wish.options.pronunciations, *stored))
    return replace(wish.options, language=wish.language, pronunciations=entries)


def _read(frontend: TextFrontend, options: TextOptions, wish: SpeechWish) -> Iterator[_Read]:
    if wish.input_type == "text":
        yield _Read(NormalizedPassage(), frontend.analyse(wish.text, options))
        return
    for passage in parse_ssml(wish.text, frontend.capabilities, options.language):
        spoken = replace(options, language=passage.language or options.language)
        yield _Read(_shown(passage), _analysis(frontend, passage, spoken))


def _analysis(frontend: TextFrontend, passage: Passage, options: TextOptions) -> Analysis | None:
    try:
        return frontend.analyse(passage.text, options, passage.literals)
    except TextError as error:
        if error.code in _WORDLESS:
            return None
        raise


def _shown(passage: Passage) -> NormalizedPassage:
    return NormalizedPassage(
        voice=passage.voice,
        speed=passage.speed,
        volume=passage.volume,
        pitch=passage.pitch,
        break_after_s=passage.break_after_s,
    )
