"""Who speaks, and in which of the model's modes: a wish's voice as the engine's request takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.backend import Backend
from api.errors import ApiError
from api.references import ReferenceVoices
from api.threads import STORE_READERS, TEXT_READERS, run_in
from api.wish import INLINE_VOICE, SpeechWish
from models.conditioning import Conditioning
from runners.request import ModelInfo, VoiceInfo
from text.clean import clean
from text.errors import TextError
from text.frontend import TextFrontend

if TYPE_CHECKING:
    from runners.voice_record import StoredVoice, VoiceRecord
    from runners.voice_store import VoiceStore


@dataclass(frozen=True)
class Role:
    """The fields of a SpeechRequest that say who speaks and how."""

    voice: str | None = None
    conditioning: Conditioning | None = None
    prompt_text: str | None = None
    instructions: str | None = None
    cross_lingual: bool = False


def modes_of(voice: VoiceRecord, info: ModelInfo) -> list[str]:
    """What a saved voice can be used for; the first is its own mode."""
    if not voice.speech_tokens:
        return ["preset"]
    transcribed = voice.transcript is not None or voice.text_ids > 0
    modes = [*(["zero_shot"] if transcribed else []), "cross_lingual", "instruct"]
    return [mode for mode in modes if mode in info.modes]


@dataclass(frozen=True)
class Casting:
    """Finds the voices of one wish, for the whole of it or for passages of their own voice."""

    backend: Backend
    references: ReferenceVoices
    voices: VoiceStore | None
    wish: SpeechWish
    info: ModelInfo

    async def role(self, voice: str | None = None) -> Role:
        """`voice` None: the wish's. Raises ApiError voice_not_found, voice_required, invalid_value,
        unsupported_parameter, and what TextError, AudioError and RequestError a reference raises."""
        if voice is None and self.wish.ref_audio is not None:
            return await self._reference()
        name = voice or self.wish.voice or self.info.default_voice
        if name is None:
            message = "This model has no default voice: give voice or ref_audio."
            raise ApiError(400, "voice_required", message, "voice")
        presets = {preset.id: preset for preset in self.info.voices}
        if name in presets:
            return self._preset(presets[name])
        if (stored := await self._saved(name)) is not None:
            return await self._stored(stored)
        if name == INLINE_VOICE:
            raise ApiError(400, "voice_required", f"voice {INLINE_VOICE!r} needs ref_audio.", "ref_audio")
        known = ", ".join(presets) or "none; give ref_audio"
        saved = "" if self.voices is None else " Saved voices: GET /v1/audio/voices."
        raise ApiError(404, "voice_not_found", f"No voice {name!r}. Known presets: {known}.{saved}", "voice")

    async def _saved(self, name: str) -> StoredVoice | None:
        return None if self.voices is None else await run_in(STORE_READERS, self.voices.get, name)

    async def _reference(self) -> Role:
        wish = self.wish
        assert wish.ref_audio is not None
        instructions = self._instructions()
        conditioning = await self.references.conditioning(wish.ref_audio)
        transcript = await self._transcript(wish.ref_text) if wish.ref_text is not None else None
        return Role(conditioning=conditioning, prompt_text=transcript, instructions=instructions)

    def _preset(self, voice: VoiceInfo) -> Role:
        mode = self._mode(voice.id, voice.modes)
        return Role(voice=voice.id, instructions=self._instructions(), cross_lingual=mode == "cross_lingual")

    async def _stored(self, voice: StoredVoice) -> Role:
        prompt = voice.conditioning
        mode = self._mode(voice.name, modes_of(voice, self.info))
        transcript = None
        if mode == "zero_shot" and voice.transcript is not None:
            transcript = await self._transcript(voice.transcript)
        return Role(
            conditioning=prompt,
            prompt_text=transcript,
            instructions=self._instructions(),
            cross_lingual=mode == "cross_lingual",
        )

    def _mode(self, voice: str, modes: Sequence[str]) -> str:
        """The mode that is wanted of `modes`, the first of which is the voice's own. Raises ApiError."""
        task = self.wish.task_type or ("instruct" if self.wish.instructions is not None else None)
        mode = "preset" if task == "sft" else task or modes[0]
        if mode not in modes:
            known = ", ".join("sft" if mode == "preset" else mode for mode in modes)
            message = f"The voice {voice!r} cannot be used for {task}, only for {known}."
            raise ApiError(400, "unsupported_parameter", message, "task_type" if self.wish.task_type else "voice")
        return mode

    def _instructions(self) -> str | None:
        if self.wish.instructions is None:
            return None
        instructions = clean(self.wish.instructions)
        if not instructions:
            raise ApiError(400, "invalid_value", "instructions say nothing.", "instructions")
        return instructions

    async def _transcript(self, text: str) -> str:
        return await transcript_of(self.backend.frontend, text, "clone without one")


async def transcript_of(frontend: TextFrontend, text: str, otherwise: str) -> str:
    """`ref_text` as the engine reads it; `otherwise`: what leaving it out does. Raises ApiError."""
    try:
        transcript = await run_in(TEXT_READERS, frontend.prompt_text, text)
    except TextError as error:
        raise ApiError(400, error.code, error.message, "ref_text") from error
    if not transcript:
        raise ApiError(400, "invalid_value", f"ref_text has no words; leave it out to {otherwise}.", "ref_text")
    return transcript
