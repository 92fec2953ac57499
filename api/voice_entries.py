"""Voices as `/v1/audio/voices` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from api.casting import modes_of
from runners.request import ModelInfo, VoiceInfo

if TYPE_CHECKING:
    from runners.voice_store import VoiceRecord, VoiceStore


SPEECH_TOKENS_PER_SECOND = 25


class _Voice(BaseModel):
    id: str
    name: str
    supported_modes: list[str]
    languages: list[str]
    models: list[str] = Field(description="Those that can use it.")
    default: bool = Field(description="Whether it speaks where no voice is named.")


class PresetVoice(_Voice):
    """A voice that came with the model."""

    type: Literal["preset"]


class SavedVoice(_Voice):
    """A voice that was saved, in the list's form."""

    type: Literal["cloned"]
    created_at: int = Field(description="Unix time, seconds.")
    consent_id: str
    usable: bool = Field(description="Whether the loaded model can use it.")
    unusable_because: str = Field("", description="Where it cannot.")


class Consent(BaseModel):
    """By which the person who is heard agreed."""

    id: str
    statement: str
    given_at: int = Field(description="Unix time, seconds.")


class SavedVoiceDetails(SavedVoice):
    """A saved voice with everything that is recorded of it."""

    description: str
    ref_text: str | None
    sample_seconds: float
    consent: Consent


class VoiceList(BaseModel):
    voices: list[PresetVoice | SavedVoice]


def entries(store: VoiceStore, info: ModelInfo) -> list[SavedVoice]:
    """Every saved voice."""
    return [SavedVoice(**_stored(voice, store, info)) for voice in store.list()]


def preset_entry(voice: VoiceInfo, info: ModelInfo) -> PresetVoice:
    return PresetVoice(
        id=voice.id,
        name=voice.id,
        type="preset",
        supported_modes=list(voice.modes),
        languages=list(info.languages),
        models=[info.name],
        default=voice.id == info.default_voice,
    )


def _stored(voice: VoiceRecord, store: VoiceStore, info: ModelInfo) -> dict[str, Any]:
    usable = store.usable(voice)
    entry = {
        "id": voice.id,
        "name": voice.name,
        "type": "cloned",
        "supported_modes": modes_of(voice, info) if usable else [],
        "languages": list(info.languages) if usable else [],
        "models": [info.name] if usable else [],
        "default": False,
        "created_at": voice.created_at,
        "consent_id": voice.consent_id,
        "usable": usable,
    }
    if not usable:
        made_for = f"CosyVoice {voice.model.version} ({voice.model.name})"
        entry["unusable_because"] = f"It was made for another model, {made_for}: save it anew from its recording."
    return entry


def details(voice: VoiceRecord, store: VoiceStore, info: ModelInfo) -> SavedVoiceDetails:
    return SavedVoiceDetails(
        **_stored(voice, store, info),
        description=voice.description,
        ref_text=voice.transcript,
        sample_seconds=round(voice.speech_tokens / SPEECH_TOKENS_PER_SECOND, 2),
        consent=Consent(id=voice.consent.id, statement=voice.consent.statement, given_at=voice.consent.given_at),
    )
