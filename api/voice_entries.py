"""Voices as `/v1/audio/voices` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.casting import modes_of
from runners.request import ModelInfo, VoiceInfo

if TYPE_CHECKING:
    from runners.voice_store import VoiceRecord, VoiceStore


SPEECH_TOKENS_PER_SECOND = 25


def entries(store: VoiceStore, info: ModelInfo) -> list[dict[str, Any]]:
    """Every saved voice, in the list's form."""
    return [_stored(voice, store, info) for voice in store.list()]


def preset_entry(voice: VoiceInfo, info: ModelInfo) -> dict[str, Any]:
    """A voice that came with the model."""
    return {
        "id": voice.id,
        "name": voice.id,
        "type": "preset",
        "supported_modes": list(voice.modes),
        "languages": list(info.languages),
        "models": [info.name],
        "default": voice.id == info.default_voice,
    }


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


def details(voice: VoiceRecord, store: VoiceStore, info: ModelInfo) -> dict[str, Any]:
    """A saved voice with everything that is recorded of it."""
    return {
        **_stored(voice, store, info),
        "description": voice.description,
        "ref_text": voice.transcript,
        "sample_seconds": round(voice.speech_tokens / SPEECH_TOKENS_PER_SECOND, 2),
        "consent": {"id": voice.consent.id, "statement": voice.consent.statement, "given_at": voice.consent.given_at},
    }
