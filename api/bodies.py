"""The speech endpoints' bodies, JSON or a form, as what is to be spoken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from fastapi import Request
from pydantic.fields import FieldInfo

from api.errors import ApiError
from api.form import read_form
from api.references import Reference
from api.schema import Body, SpeechBody, SpokenBody, json_schema, read_body, validated
from api.wish import SpeechWish, check_choice
from runners.request import Sampling
from text.errors import TextError
from text.options import TextOptions
from text.pronunciation import Pronunciation

FORM = "multipart/form-data"
GRANULARITIES = ("segment",)


async def read_speech(request: Request) -> tuple[SpeechBody, bytes | None]:
    """The body of a speech request, and the file part `ref_audio` of one that comes as a form. Raises ApiError."""
    if not is_form(request):
        return await read_body(request, SpeechBody), None
    form = await read_form(request, "ref_audio", SpeechBody.model_fields)
    return from_fields(form.fields, SpeechBody), form.files.get("ref_audio")


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


def from_fields(fields: Mapping[str, str], kind: type[Body]) -> Body:
    """The fields of a form as the body that would be JSON elsewhere. Raises ApiError."""
    return validated({name: _value(name, text, kind.model_fields[name]) for name, text in fields.items()}, kind)


def _value(name: str, text: str, field: FieldInfo) -> Any:
    """A form's field: text as it is, or what is no text as JSON."""
    if _takes_text(field.annotation):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ApiError(
            422, "invalid_type", f"`{name}` must be JSON in a form: a number, true, a list ...", name
        ) from None


def _takes_text(annotation: Any) -> bool:
    if annotation is str or get_origin(annotation) is Literal:
        return True
    return get_origin(annotation) is not list and any(map(_takes_text, get_args(annotation)))


def wish_of(body: SpokenBody, *, stream: bool, recording: Reference | None = None) -> SpeechWish:
    """`recording`: a reference that came beside the body. Raises ApiError."""
    reference, transcript = _reference(body, recording)
    return SpeechWish(
        text=body.input,
        voice=body.voice,
        speed=body.speed,
        seed=body.seed,
        instructions=body.instructions or None,  # a form that was not filled in has ""
        ref_audio=reference,
        ref_text=transcript,
        stream=stream,
        task_type=body.task_type,
        language=body.language,
        input_type=body.input_type,
        options=text_options(body),
        dictionaries=tuple(body.pronunciation_dictionary_ids or ()),
        sample_rate=body.sample_rate,
        volume=body.volume,
        pitch=body.pitch,
        sampling=Sampling(body.temperature, body.top_p, body.top_k, body.max_new_tokens),
        timeout_s=body.timeout_s,
    )


def text_options(body: SpokenBody) -> TextOptions:
    """Raises ApiError invalid_value, invalid_pronunciation."""
    modes = body.normalization_options.model_dump(exclude_none=True) if body.normalization_options else {}
    pronunciations = _pronunciations(body)
    try:
        return TextOptions(normalization=body.text_normalization, pronunciations=pronunciations, **modes)
    except TextError as error:
        field = "normalization_options" if modes else "text_normalization"
        raise ApiError(400, error.code, error.message, field) from error


def wants_segments(body: SpokenBody) -> bool:
    """Whether the times of segments are asked for. Raises ApiError unsupported_parameter, invalid_value."""
    wanted = body.timestamp_granularities or []
    if "word" in wanted:
        message = "This server knows when segments are heard, not words."
        raise ApiError(400, "unsupported_parameter", message, "timestamp_granularities")
    for granularity in wanted:
        check_choice("timestamp_granularities", granularity, GRANULARITIES)
    return bool(wanted)


def _pronunciations(body: SpokenBody) -> tuple[Pronunciation, ...]:
    try:
        return tuple(Pronunciation(**entry.model_dump()) for entry in body.pronunciation or ())
    except TextError as error:
        raise ApiError(400, error.code, error.message, "pronunciation") from error


def _reference(body: SpokenBody, recording: Reference | None) -> tuple[Reference | None, str | None]:
    given = [body.ref_audio, recording, *(reference.audio_path for reference in body.references or ())]
    named = [reference for reference in given if reference is not None]
    if len(named) > 1:
        raise ApiError(400, "invalid_value", "ref_audio and references are the same: give one.", "ref_audio")
    texts = [body.ref_text, *(reference.text for reference in body.references or ())]
    if len(said := [text for text in texts if text]) > 1:
        raise ApiError(400, "invalid_value", "ref_text is also in references: give one.", "ref_text")
    return next(iter(named), None), next(iter(said), None)


def speech_document() -> dict[str, Any]:
    """The speech endpoint's body in the OpenAPI document."""
    schema = json_schema(SpeechBody)
    upload = {"type": "string", "format": "binary", "description": "Voice to clone: a sound file of 1 to 30 s."}
    form = {**schema, "properties": {**schema["properties"], "ref_audio": upload}}
    content = {"application/json": {"schema": schema}, FORM: {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}
