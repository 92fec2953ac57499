"""The bodies of the public surface: what is accepted, within which limits, and how a bad body is explained."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, ValidationError, WithJsonSchema

from api.arrival import parsed, read_bytes
from api.errors import ApiError
from text.options import MODES

MAX_JSON_PARTS = 2**16
"""Objects, lists and pairs in a body. The parser lets no other thread run: a million pairs would hold streams up."""
MAX_JSON_VALUES = 2**21
"""In the lists of a body, for the same reason: 30 s at 48 kHz are 1.4 million samples."""
MAX_SEED = 2**63 - 1
MAX_INSTRUCTIONS = 512
MAX_REF_TEXT = 2000

MAX_OWN_PRONUNCIATIONS = 200
MAX_DICTIONARIES = 8

# Fields of OpenAI's and its relatives' speech APIs that this server knows of but does not honour.
KNOWN_UNSUPPORTED = frozenset(["priority", "watermark", "initial_chunk_tokens"])

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True)]


def json_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """The schema of a body, for a place in the OpenAPI document: without references to definitions beside it."""
    schema = kind.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(item) for item in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inlined(definitions[part["$ref"].rpartition("/")[2]])
        return {name: inlined(value) for name, value in part.items()}

    return inlined(schema)


def modes_of(option: str) -> str:
    """The values of a text option and what they do."""
    return "; ".join(f"{mode}: {meaning}" for mode, meaning in MODES[option].items())


class Fields(BaseModel):
    """A body, or an object in one, that has no fields but its own."""

    model_config = ConfigDict(extra="forbid")


def _voice_id(value: Any) -> Any:
    """OpenAI's SDK takes a voice of one's own as {"id": ...}."""
    return value["id"] if isinstance(value, dict) and value.keys() == {"id"} else value


Voice = Annotated[
    str,
    BeforeValidator(_voice_id),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            ]
        }
    ),
]


class ReferenceBody(Fields):
    """`references`: what other servers call `ref_audio` and `ref_text`."""

    audio_path: str = Field(description="As ref_audio.")
    text: str | None = Field(None, max_length=MAX_REF_TEXT, description="As ref_text.")


class NormalizationBody(Fields):
    """What happens to the parts of a text that are no plain words; left out: as TextOptions has it."""

    url: str | None = Field(None, description=modes_of("url"))
    email: str | None = Field(None, description=modes_of("email"))
    phone: str | None = Field(None, description=modes_of("phone"))
    unit: str | None = Field(None, description=modes_of("unit"))
    markdown: str | None = Field(None, description=modes_of("markdown"))
    emoji: str | None = Field(None, description=modes_of("emoji"))
    code: str | None = Field(None, description=modes_of("code"))
    math: str | None = Field(None, description=modes_of("math"))


class PronunciationBody(Fields):
    """How one word is said: one of the others beside `text`."""

    text: str
    pinyin: str | None = None
    cmu: str | None = None
    ipa: str | None = None
    replace: str | None = None


class TextBody(Fields):
    """The text to speak, and what decides how it is read."""

    input: str = Field(description="The text to speak, or SSML.")
    input_type: str = Field("text", description="text or ssml.")
    language: str = Field("auto", description="auto, zh, en, ja, ko, yue, de, es, fr, it or ru.")
    text_normalization: str = Field("auto", description=modes_of("normalization"))
    normalization_options: NormalizationBody | None = None
    pronunciation: list[PronunciationBody] | None = Field(None, max_length=MAX_OWN_PRONUNCIATIONS)
    pronunciation_dictionary_ids: list[str] | None = Field(None, max_length=MAX_DICTIONARIES)


class SpokenBody(TextBody):
    """What is spoken and how: every field of `POST /v1/audio/speech` but those of its way back."""

    model: str | None = Field(None, description="The served model's id; may be left out.")
    voice: Voice | None = Field(None, description="A voice of GET /v1/audio/voices, by id or name.")
    response_format: str = Field("wav", description="wav, pcm (16 bit little-endian mono), mp3, opus, flac or aac.")
    speed: Number = Field(1.0, description="0.25 to 4.0; 2.0 is twice as fast.")
    volume: Number = Field(50.0, description="0 to 100; 50 leaves the model's loudness, 100 doubles the amplitude.")
    pitch: Number = Field(1.0, description="0.5 to 2.0 times the voice's own.")
    sample_rate: Whole | None = Field(None, description="8000 to 48000 Hz; default: the model's.")
    seed: Whole | None = Field(None, description="Same seed, same audio.")
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS, description="How to speak, in words.")
    ref_audio: str | None = Field(None, description="Voice to clone, 1 to 30 s: a data URL, or an allowed link.")
    ref_text: str | None = Field(None, max_length=MAX_REF_TEXT, description="What is said in ref_audio.")
    references: list[ReferenceBody] | None = Field(None, max_length=1, description="One: ref_audio and ref_text.")
    task_type: str | None = Field(None, description="sft, zero_shot, cross_lingual or instruct; default: what fits.")
    temperature: Number | None = Field(None, description="0.01 to 2.0; default 1.0.")
    top_p: Number | None = Field(None, description="0.01 to 1.0; default: the model's.")
    top_k: Whole | None = Field(None, description="1 to 1000; default: the model's.")
    max_new_tokens: Whole | None = Field(None, description="Speech tokens of one segment, 25 to 4096.")
    timeout_s: Number | None = Field(None, description="Seconds the whole speech may take.")
    timestamp_granularities: list[str] | None = Field(None, max_length=2, description='["segment"].')


class SpeechBody(SpokenBody):
    """`POST /v1/audio/speech`: OpenAI's fields and this server's own."""

    stream_format: Literal["audio", "sse"] = Field("audio", description="Raw audio, or server-sent events.")
    stream: StrictBool = Field(True, description="false: one buffered file with exact sizes in its header.")


Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The JSON body as `kind`. Raises ApiError: those of `read_bytes`, input_not_utf8, invalid_json, invalid_type,
    unknown_parameter, unsupported_parameter, missing_parameter, invalid_value."""
    return await parsed(partial(_read, kind=kind), await read_bytes(request))


def loads(data: bytes) -> Any:
    """The JSON in `data`. Raises ApiError: input_not_utf8, invalid_json."""
    if sum(map(data.count, (b"{", b"[", b":"))) > MAX_JSON_PARTS:
        raise ApiError(400, "invalid_json", f"The JSON has over {MAX_JSON_PARTS:,} objects, lists and pairs.")
    if data.count(b",") > MAX_JSON_VALUES:
        raise ApiError(400, "invalid_json", f"The JSON has over {MAX_JSON_VALUES:,} values.")
    try:
        return json.loads(data.decode())
    except UnicodeDecodeError:
        raise ApiError(400, "input_not_utf8", "The JSON is not valid UTF-8.") from None
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "The body is not valid JSON.") from None


def read_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises ApiError: those of `loads`, invalid_type."""
    values = loads(data)
    if not isinstance(values, dict):
        raise ApiError(422, "invalid_type", "The body must be a JSON object.")
    return values


def _read(data: bytes, kind: type[Body]) -> Body:
    return validated(read_object(data), kind)


def validated(values: Any, kind: type[Body], path: tuple[str | int, ...] = ()) -> Body:
    """`values` as `kind`. Raises ApiError for the first field at fault; `path` leads to `values` in the body."""
    _check_names(values, kind, path)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _explain(error.errors()[0], path) from None


def _check_names(values: Any, kind: type[BaseModel], path: tuple[str | int, ...]) -> None:
    """Before pydantic, which would describe each of a million unknown names."""
    if not isinstance(values, dict):
        return
    for name, value in values.items():
        if name not in kind.model_fields:
            raise _unknown(name, path)
        for inner in _models_in(kind.model_fields[name].annotation):
            items = enumerate(value) if isinstance(value, list) else [(None, value)]
            for index, item in items:
                _check_names(item, inner, (*path, name) if index is None else (*path, name, index))


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _unknown(name: str, path: tuple[str | int, ...]) -> ApiError:
    field = _dotted(*path, name)
    try:
        name.encode()
    except UnicodeEncodeError:
        return ApiError(400, "input_not_utf8", "The name of a parameter is not valid Unicode text.")
    if name in KNOWN_UNSUPPORTED or name in SpeechBody.model_fields:
        return ApiError(400, "unsupported_parameter", f"`{field}` is not supported here.", field)
    return ApiError(400, "unknown_parameter", f"There is no parameter `{field}`.", field)


def _dotted(*path: str | int) -> str:
    return ".".join(map(str, path))


def _explain(problem: Any, path: tuple[str | int, ...]) -> ApiError:
    field = _dotted(*path, *problem["loc"])
    kind = problem["type"]
    if kind == "missing":
        return ApiError(400, "missing_parameter", f"`{field}` is required.", field)
    if kind in ("string_unicode", "value_error.unicode"):
        return ApiError(400, "input_not_utf8", f"`{field}` is not valid Unicode text.", field)
    if kind.endswith(("_type", "_parsing")):
        return ApiError(422, "invalid_type", f"`{field}`: {problem['msg']}.", field)
    return ApiError(400, "invalid_value", f"`{field}`: {problem['msg']}.", field)
