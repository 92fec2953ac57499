"""What `session.config` of `WS /v1/audio/speech/stream` takes, and which of it go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from api.errors import ApiError
from api.schema import SpokenBody, validated
from api.wish import check_format, check_model
from audio.encode import FORMATS
from runners.request import ModelInfo

# Who speaks: one of these takes the place of the others, with the transcript that belongs to them.
_WHO = frozenset(("voice", "ref_audio", "references"))
_FORMAT = frozenset(("format", "response_format"))


class SessionConfig(SpokenBody):
    """`session.config`: the fields of the speech endpoint but for the text, and how the text is cut."""

    input: str = Field("", max_length=0, description="The text comes in input.text.")
    format: str | None = Field(None, description="The same as response_format.")
    policy: Literal["sentence", "clause", "model"] = Field(
        "sentence", description="What is spoken before more text is there; model: already the words of a sentence."
    )


def speaks_anew(message: Mapping[str, Any]) -> bool:
    """Whether `message` says who speaks: the recording of an earlier one is then out of use."""
    return not _WHO.isdisjoint(message)


def merged(given: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """All that was `given`, and `message`: the latest of each field."""
    replaced: set[str] = set()
    if speaks_anew(message):
        replaced |= {*_WHO, "ref_text"}
    if not _FORMAT.isdisjoint(message):
        replaced |= _FORMAT
    return {**{name: value for name, value in given.items() if name not in replaced}, **message}


def read_config(given: Mapping[str, Any], info: ModelInfo) -> SessionConfig:
    """`given` as it can be followed. Raises ApiError."""
    config = validated(given, SessionConfig)
    if config.format is not None:
        config.response_format = config.format
    check_model(config.model, info)
    check_format(config.response_format, FORMATS, "format")
    if config.input_type != "text" or config.timeout_s is not None:
        param = "timeout_s" if config.timeout_s is not None else "input_type"
        raise ApiError(400, "unsupported_parameter", f"A session takes no {param} of its own.", param)
    if config.policy == "model":
        _check_bistream(config, info)
    return config


def _check_bistream(config: SessionConfig, info: ModelInfo) -> None:
    if "bistream" not in info.modes:
        message = "This model does not speak while its text arrives: policy is sentence or clause."
        raise ApiError(400, "unsupported_parameter", message, "policy")
    if config.instructions is not None and info.version == 2:
        message = "CosyVoice 2 follows instructions only by the policies sentence and clause."
        raise ApiError(400, "unsupported_parameter", message, "instructions")
    if config.pronunciation or config.pronunciation_dictionary_ids:
        message = "Pronunciations are heard only by the policies sentence and clause."
        raise ApiError(400, "unsupported_parameter", message, "pronunciation")
