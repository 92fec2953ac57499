"""What a DashScope task asks for, in the names of its protocol, as what is to be spoken here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, StrictBool

from api.errors import ApiError
from api.names import model_names
from api.schema import Number, Whole, validated
from api.wish import SpeechWish, check_format
from audio.encode import FORMATS
from runners.request import ModelInfo
from text.errors import TextError
from text.options import TextOptions
from text.pronunciation import Pronunciation

# What the SDK sends for AudioFormat.DEFAULT means this.
_DEFAULT_FORMAT, _DEFAULT_SAMPLE_RATE = "mp3", 22_050
_MAX_FIXES = 500


@dataclass(frozen=True)
class Task:
    """`wish` lacks its text. `markup`: text that begins as SSML is SSML."""

    wish: SpeechWish
    audio_format: str
    markup: bool


class ContinueInput(BaseModel):
    """`payload.input` of continue-task. `flush`: speak now what has come."""

    text: str | None = None
    flush: StrictBool = False


class FinishInput(BaseModel):
    """`payload.input` of finish-task. `directive` "cancel": speak no more."""

    directive: str | None = None


class _HotFix(BaseModel):
    """Entries of one word each: how it sounds in pinyin, or what is said instead."""

    pronunciation: list[dict[str, str]] = Field([], max_length=_MAX_FIXES)
    replace: list[dict[str, str]] = Field([], max_length=_MAX_FIXES)


class _Parameters(BaseModel):
    """`payload.parameters` of run-task."""

    voice: str | None = None
    format: str = "Default"
    sample_rate: Whole = 0
    bit_rate: Whole | None = None
    volume: Number = 50.0
    rate: Number = 1.0
    pitch: Number = 1.0
    seed: Whole = 0
    type: Whole = 0
    text_type: Literal["PlainText", "SSML"] = "PlainText"
    instruction: str | None = None
    language_hints: list[str] | None = Field(None, max_length=10)
    enable_ssml: StrictBool = False
    word_timestamp_enabled: StrictBool = False
    phoneme_timestamp_enabled: StrictBool = False
    hot_fix: _HotFix = Field(default_factory=lambda: _HotFix.model_validate({}))
    enable_markdown_filter: StrictBool | None = None


def object_in(message: dict[str, Any], name: str) -> dict[str, Any]:
    """Raises ApiError invalid_type."""
    value = message.get(name)
    if not isinstance(value, dict):
        raise ApiError(422, "invalid_type", f"`{name}` must be an object.", name)
    return value


def task_of(payload: dict[str, Any], info: ModelInfo) -> Task:
    """The task that `payload` of run-task describes. Raises ApiError."""
    for name, value in (("task_group", "audio"), ("task", "tts"), ("function", "SpeechSynthesizer")):
        if payload.get(name, value) != value:
            raise ApiError(400, "unsupported_parameter", f"{name} can only be {value}.", name)
    _check_model(payload.get("model"), info)
    asked = validated(object_in(payload, "parameters"), _Parameters, ("parameters",))
    _check_supported(asked)
    audio_format = _DEFAULT_FORMAT if asked.format == "Default" else asked.format
    check_format(audio_format, FORMATS, "parameters.format")
    wish = SpeechWish(
        text="",
        voice=asked.voice,
        speed=asked.rate,
        volume=asked.volume,
        pitch=asked.pitch,
        seed=asked.seed,
        instructions=asked.instruction or None,
        language=asked.language_hints[0] if asked.language_hints else "auto",  # the protocol looks at the first only
        options=_options(asked),
        sample_rate=asked.sample_rate or _DEFAULT_SAMPLE_RATE,
    )
    return Task(wish, audio_format, asked.enable_ssml or asked.text_type == "SSML")


def _check_model(model: Any, info: ModelInfo) -> None:
    """Its name here, or DashScope's: cosyvoice-v2, cosyvoice-v3-flash ... Raises ApiError model_not_found."""
    if isinstance(model, str) and (
        model in model_names(info) or re.fullmatch(rf"cosyvoice-v{info.version}(?:-[a-z]+)?", model)
    ):
        return
    message = f"No model {model!r}: this server has CosyVoice {info.version}, so model is 'cosyvoice-v{info.version}'."
    raise ApiError(404, "model_not_found", message, "model")


def _check_supported(asked: _Parameters) -> None:
    for name in ("word_timestamp_enabled", "phoneme_timestamp_enabled"):
        if getattr(asked, name):
            message = "This server does not know when words are heard."
            raise ApiError(400, "unsupported_parameter", message, f"parameters.{name}")
    if asked.type:
        raise ApiError(400, "unsupported_parameter", "type can only be 0.", "parameters.type")


def _options(asked: _Parameters) -> TextOptions:
    markdown = "keep" if asked.enable_markdown_filter is False else "strip"
    try:
        pronunciations = (
            *(
                Pronunciation(text, pinyin=sound)
                for entry in asked.hot_fix.pronunciation
                for text, sound in entry.items()
            ),
            *(Pronunciation(text, replace=words) for fix in asked.hot_fix.replace for text, words in fix.items()),
        )
    except TextError as error:
        raise ApiError(400, error.code, error.message, "parameters.hot_fix") from error
    return TextOptions(markdown=markdown, pronunciations=pronunciations)
