"""What the JSON of answers looks like, server-sent events included, as far as several routes answer so."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, RootModel


class ErrorAbout(BaseModel):
    message: str = Field(description="One sentence for a person.")
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None = Field(description="The field at fault.")
    code: str = Field(description="Stable: for programs.")


class Error(BaseModel):
    """Every refusal."""

    error: ErrorAbout


class Deleted(BaseModel):
    id: str
    deleted: Literal[True]


class SegmentTimes(BaseModel):
    """When a segment is heard: seconds from the first sample."""

    index: int
    text: str = Field(description="As it was read.")
    start_s: float
    end_s: float


class Usage(BaseModel):
    """In tokens of text and of speech."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Ending(BaseModel):
    """What is known when all is said."""

    usage: Usage
    finish_reason: Literal["stop", "length"] = Field(description="length: a limit of tokens cut a segment.")
    segments: list[SegmentTimes] = Field([], description="All of them, where timestamp_granularities asks for them.")


class SpeechFile(Ending):
    """The answer to `stream: false` where the times of segments are asked for."""

    audio: str = Field(description="The whole file as base64.")
    format: str
    sample_rate: int
    duration_s: float


class SpeechAudioDelta(BaseModel):
    type: Literal["speech.audio.delta"]
    audio: str = Field(description="The next bytes of the file as base64.")
    segments: list[SegmentTimes] = Field([], description="Those made since the last event, where they are asked for.")


class SpeechAudioDone(Ending):
    """The last event of a speech that is whole."""

    type: Literal["speech.audio.done"]


class SpeechAudioError(BaseModel):
    """The last event of a speech that is not whole."""

    type: Literal["speech.audio.error"]
    error: ErrorAbout


class SpeechEvent(
    RootModel[Annotated[SpeechAudioDelta | SpeechAudioDone | SpeechAudioError, Field(discriminator="type")]]
):
    """The `data` of each event of `stream_format: sse`."""
