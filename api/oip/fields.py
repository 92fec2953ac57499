"""Speech fields as plain JSON, for the calls that have no tensors: v1 predict and Triton's generate."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.oip.formats import AudioTensor
from api.oip.inference import Spoken
from api.oip.models import reference_from_text
from api.wish import SpeechWish, check_format
from audio.encode import FORMATS


class SpeechFields(BaseModel):
    """What `POST /v1/audio/speech` takes, by the names of the tensors."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="The text to speak.")
    voice: str | None = Field(None, description="A voice of GET /v1/audio/voices; default: the model's own.")
    ref_audio: str | None = Field(None, description="Voice to clone: a sound file of 1 to 30 s as base64.")
    ref_text: str | None = Field(None, description="What is said in ref_audio.")
    instructions: str | None = Field(None, description="How to speak, in words.")
    speed: Annotated[float, Field(strict=True)] = Field(1.0, description="0.25 to 4.0; 2.0 is twice as fast.")
    seed: Annotated[int, Field(strict=True)] | None = Field(None, description="Same seed, same audio.")
    format: str = Field("wav", description=f"{', '.join(FORMATS)}; always as base64.")

    def wish(self, stream: bool) -> SpeechWish:
        return SpeechWish(
            text=self.text,
            voice=self.voice,
            speed=self.speed,
            seed=self.seed,
            instructions=self.instructions,
            ref_audio=reference_from_text(self.ref_audio) if self.ref_audio is not None else None,
            ref_text=self.ref_text,
            stream=stream,
        )

    def audio(self, sample_rate: int) -> AudioTensor:
        """Raises ApiError unsupported_format."""
        check_format(self.format, FORMATS, "format")
        return AudioTensor(self.format + "_base64", sample_rate)

    def answer(self, spoken: Spoken, sample_rate: int) -> dict[str, Any]:
        return {
            "audio": spoken.audio.data[0].decode(),
            "sample_rate": sample_rate,
            "format": self.format,
            "seed": spoken.seed,
            "finish_reason": spoken.summary.finish_reason,
        }
