"""`POST /v1/text/normalize`: how a text would be read, without speaking it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from api.bodies import wish_of
from api.passages import Passage, passages_of
from api.schema import SpokenBody, TextBody, json_schema, read_body
from api.synthesis import Speaker
from api.wish import check_wish


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
        passages = await passages_of(speaker.backend.frontend, speaker.dictionaries, wish)
        return _shown(passages)

    return routes


def _shown(passages: Sequence[Passage]) -> NormalizedText:
    return NormalizedText(
        text=" ".join(segment.text for passage in passages for segment in passage.segments),
        segments=[
            NormalizedSegment(
                text=segment.text,
                model_text=segment.tokens_text,
                tokens=tokens,
                language=segment.language,
                passage=index,
            )
            for index, passage in enumerate(passages)
            for segment, tokens in zip(passage.segments, passage.tokens, strict=True)
        ],
        passages=[NormalizedPassage(**vars(passage.manner), break_after_s=passage.pause_s) for passage in passages],
        warnings=[
            ReadingWarning(code=warning.code, message=warning.message)
            for warning in dict.fromkeys(chain.from_iterable(passage.warnings for passage in passages))
        ],
    )
