"""The bodies of the public surface: what is accepted, within which limits, and how a bad body is explained."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from api.arrival import parsed, read_bytes
from api.errors import ApiError

MAX_JSON_PARTS = 2**16
"""Objects, lists and pairs in a body. The parser lets no other thread run: a million pairs would hold streams up."""
MAX_JSON_VALUES = 2**21
"""In the lists of a body, for the same reason: 30 s at 48 kHz are 1.4 million samples."""
MAX_SEED = 2**63 - 1
MAX_INSTRUCTIONS = 512
MAX_REF_TEXT = 2000

# Fields of OpenAI's and its relatives' speech APIs that this server knows of but does not honour.
KNOWN_UNSUPPORTED = frozenset(
    [
        "volume",
        "pitch",
        "sample_rate",
        "language",
        "timeout_s",
        "timestamp_granularities",
        "temperature",
        "top_p",
        "top_k",
        "max_new_tokens",
        "task_type",
        "text_normalization",
        "input_type",
        "pronunciation",
        "priority",
        "watermark",
        "initial_chunk_tokens",
        "references",
    ]
)


class SpeechBody(BaseModel):
    """`POST /v1/audio/speech`: OpenAI's fields, and `seed`, `stream`, `ref_audio`, `ref_text`."""

    model_config = ConfigDict(extra="forbid")

    input: str = Field(description="The text to speak.")
    model: str | None = Field(None, description="The served model's id; may be left out.")
    voice: str | None = Field(None, description="A voice of GET /v1/audio/voices; default: the model's own.")
    response_format: str = Field("wav", description="wav, pcm (16 bit little-endian mono) or flac.")
    speed: Annotated[float, Field(strict=True)] = Field(1.0, description="0.25 to 4.0; 2.0 is twice as fast.")
    seed: Annotated[int, Field(strict=True)] | None = Field(None, description="Same seed, same audio.")
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS, description="How to speak, in words.")
    stream_format: Literal["audio", "sse"] = Field("audio", description="Raw audio, or server-sent events.")
    stream: StrictBool = Field(True, description="false: one buffered file with exact sizes in its header.")
    ref_audio: str | None = Field(None, description="Voice to clone: data:audio/...;base64,... of 1 to 30 s.")
    ref_text: str | None = Field(None, max_length=MAX_REF_TEXT, description="What is said in ref_audio.")


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


def _read(data: bytes, kind: type[Body]) -> Body:
    values = loads(data)
    if not isinstance(values, dict):
        raise ApiError(422, "invalid_type", "The body must be a JSON object.")
    return validated(values, kind)


def validated(values: Any, kind: type[Body], path: tuple[str | int, ...] = ()) -> Body:
    """`values` as `kind`. Raises ApiError for the first field at fault; `path` leads to `values` in the body."""
    if isinstance(values, dict):
        for name in values:  # pydantic would describe each of a million
            if name not in kind.model_fields:
                raise _unknown(name, path)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _explain(error.errors()[0], path) from None


def _unknown(name: str, path: tuple[str | int, ...]) -> ApiError:
    field = _dotted(*path, name)
    try:
        name.encode()
    except UnicodeEncodeError:
        return ApiError(400, "input_not_utf8", "The name of a parameter is not valid Unicode text.")
    if name in KNOWN_UNSUPPORTED:
        return ApiError(400, "unsupported_parameter", f"This server does not support `{field}`.", field)
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
