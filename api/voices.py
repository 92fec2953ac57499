"""`/v1/audio/voices`: the model's presets and the voices that were saved; save, rename, delete, hear one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from api.answer_models import Deleted
from api.at_fault import at_fault
from api.casting import transcript_of
from api.connection import run_while_connected
from api.errors import ApiError
from api.form import read_form
from api.names import model_names
from api.schema import MAX_REF_TEXT, read_body, validated
from api.synthesis import Speaker, prepare
from api.telemetry import Recording, failure_recorded
from api.threads import DECODERS, STORE_READERS, STORE_WRITERS, run_in
from api.voice_entries import PresetVoice, SavedVoice, SavedVoiceDetails, VoiceList, details, entries, preset_entry
from api.wish import INLINE_VOICE, SpeechWish, check_model
from audio.decode import decode_reference
from audio.encode import coded_as, encode_whole
from runners.request import ModelInfo
from runners.voice_record import checked_name

if TYPE_CHECKING:
    from models.conditioning import Conditioning
    from runners.voice_store import VoiceStore

MAX_CONSENT, MAX_DESCRIPTION = 2000, 1000  # characters
MAX_PREVIEW = 200
PREVIEW_FORMAT = "wav"
PREVIEWS = {
    "en": "Hello, this is how I sound.",
    "zh": "你好，这就是我的声音。",
    "ja": "こんにちは、これが私の声です。",
    "ko": "안녕하세요, 이것이 제 목소리입니다.",
    "yue": "你好，呢個就係我把聲。",
    "de": "Hallo, so klinge ich.",
    "es": "Hola, así sueno yo.",
    "fr": "Bonjour, voici ma voix.",
    "it": "Ciao, questa è la mia voce.",
    "ru": "Здравствуйте, вот так я звучу.",
}


class VoiceForm(BaseModel):
    """The fields of `POST /v1/audio/voices` beside `audio_sample`. An empty one counts as left out."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="How people call the voice; 1 to 100 printable characters, no other voice's.")
    consent: str = Field(
        max_length=MAX_CONSENT, description="The statement by which the person who is heard agreed; kept with its time."
    )
    ref_text: str | None = Field(
        None, max_length=MAX_REF_TEXT, description="What is said in the sample; the voice is then spoken zero-shot."
    )
    description: str = Field("", max_length=MAX_DESCRIPTION)
    model: str | None = Field(None, description="The served model's id; may be left out.")
    trim: bool = Field(False, description="Drop silence at both ends; end a sample over 30 s at a pause.")
    overwrite: bool = Field(False, description="Replace the voice of that name; it keeps its id.")


class VoiceChange(BaseModel):
    """The body of `PATCH /v1/audio/voices/{id}`."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    description: str | None = Field(None, max_length=MAX_DESCRIPTION)


class PreviewBody(BaseModel):
    """The body of `POST /v1/audio/voices/{id}/preview`, which may be left out."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(None, max_length=MAX_PREVIEW, description="What to say; default: a greeting.")
    seed: int | None = Field(None, strict=True)


_AT_FAULT = {"invalid_value": "name", "voice_exists": "name", "voice_not_found": "voice_id"}
_SAMPLE = {"type": "string", "format": "binary", "description": "1 to 30 s of the voice, 16 kHz or more, up to 10 MB."}


def router(speaker: Speaker) -> APIRouter:
    routes = APIRouter()
    voices = _Voices(speaker)

    @routes.get("/v1/audio/voices", response_model_exclude_unset=True)
    async def all_voices(model: str | None = None) -> VoiceList:
        """The voices that `voice` takes, and the modes each can be used in. `model`: only those that it can use."""
        return VoiceList(voices=await voices.all(model))

    @routes.post("/v1/audio/voices", status_code=201, response_model=SavedVoiceDetails, openapi_extra=_form_document())
    async def save_voice(request: Request) -> Response:
        """Save a voice from a recording. It is used like a preset, by its id or name, in every mode."""
        form = await read_form(request, "audio_sample", VoiceForm.model_fields)
        given = {field: value for field, value in form.fields.items() if value.strip()}
        fields = validated(given, VoiceForm)
        if not (sample := form.files.get("audio_sample")):
            raise ApiError(400, "missing_parameter", "`audio_sample` is required.", "audio_sample")
        return await run_while_connected(request, voices.save(sample, fields))

    @routes.get("/v1/audio/voices/{voice_id}", response_model_exclude_unset=True)
    async def one_voice(voice_id: str) -> PresetVoice | SavedVoiceDetails:
        """A voice by its id or name, with its description, transcript and consent."""
        return await voices.one(voice_id)

    @routes.patch(
        "/v1/audio/voices/{voice_id}",
        response_model_exclude_unset=True,
        openapi_extra={"requestBody": {"required": True, **_json_document(VoiceChange)}},
    )
    async def change_voice(request: Request, voice_id: str) -> SavedVoiceDetails:
        """Rename a saved voice or describe it anew. Its sound never changes."""
        return await voices.change(voice_id, await read_body(request, VoiceChange))

    @routes.delete("/v1/audio/voices/{voice_id}")
    async def delete_voice(voice_id: str) -> Deleted:
        """Delete a saved voice, its conditioning and its record of consent."""
        return await voices.delete(voice_id)

    @routes.post(
        "/v1/audio/voices/{voice_id}/preview",
        openapi_extra={"requestBody": {"required": False, **_json_document(PreviewBody)}},
    )
    async def preview(request: Request, voice_id: str) -> Response:
        """A short sentence in that voice, as a WAV file."""
        body = await read_body(request, PreviewBody) if _has_body(request) else PreviewBody(text=None, seed=None)
        return await run_while_connected(request, voices.preview(voice_id, body))

    return routes


@dataclass(frozen=True)
class _Voices:
    """What the routes do."""

    speaker: Speaker

    async def all(self, model: str | None) -> list[PresetVoice | SavedVoice]:
        info = await self.speaker.backend.describe()
        found: list[PresetVoice | SavedVoice] = [preset_entry(voice, info) for voice in info.voices]
        if self.speaker.voices is not None:
            found += await run_in(STORE_READERS, entries, self.speaker.voices, info)
        if model is None:
            return found
        wanted = info.name if model in model_names(info) else model
        return [entry for entry in found if wanted in entry.models]

    async def one(self, voice: str) -> PresetVoice | SavedVoiceDetails:
        info = await self.speaker.backend.describe()
        for preset in info.voices:
            if preset.id == voice:
                return preset_entry(preset, info)
        if self.speaker.voices is None:
            raise ApiError(404, "voice_not_found", f"No voice {voice!r}.", "voice_id")
        with at_fault(codes=_AT_FAULT):
            record = await run_in(STORE_READERS, self.speaker.voices.record, voice)
        return details(record, self.speaker.voices, info)

    async def save(self, sample: bytes, form: VoiceForm) -> Response:
        store = self._store()
        info = await self.speaker.backend.describe()
        check_model(form.model, info)
        _check_free(form.name, info)
        if form.ref_text is not None:
            await transcript_of(self.speaker.backend.frontend, form.ref_text, "save the voice without a transcript")
        with at_fault(codes=_AT_FAULT):
            await run_in(STORE_READERS, store.check_free, form.name, form.overwrite)
        with at_fault(params={"ref_audio": "audio_sample"}):
            conditioning = await self._heard(sample, form)
        with at_fault(codes=_AT_FAULT):
            voice = await run_in(
                STORE_WRITERS,
                store.create,
                form.name,
                conditioning,
                consent=form.consent,
                transcript=form.ref_text,
                description=form.description,
                overwrite=form.overwrite,
            )
        location = {"Location": f"/v1/audio/voices/{voice.id}"}
        return JSONResponse(details(voice, store, info).model_dump(exclude_unset=True), 201, location)

    async def _heard(self, sample: bytes, form: VoiceForm) -> Conditioning:
        references = self.speaker.references
        if not form.trim:
            return await references.conditioning(sample)
        transcribed = form.ref_text is not None
        return await references.conditioning(
            await run_in(DECODERS, decode_reference, sample, trim=True, transcribed=transcribed)
        )

    async def change(self, voice: str, change: VoiceChange) -> SavedVoiceDetails:
        info = await self._changeable(voice)
        if change.name is not None:
            _check_free(change.name, info)
        store = self._store()
        with at_fault(codes=_AT_FAULT):
            record = await run_in(STORE_WRITERS, store.update, voice, name=change.name, description=change.description)
        return details(record, store, info)

    async def delete(self, voice: str) -> Deleted:
        await self._changeable(voice)
        with at_fault(codes=_AT_FAULT):
            record = await run_in(STORE_WRITERS, self._store().delete, voice)
        return Deleted(id=record.id, deleted=True)

    async def preview(self, voice: str, body: PreviewBody) -> Response:
        recording = Recording("voice_preview")
        with failure_recorded(recording), at_fault(params={"voice": "voice_id", "input": "text"}):
            info = await self.speaker.backend.describe()
            text = body.text or PREVIEWS[next(filter(PREVIEWS.__contains__, info.languages), "en")]
            wish = SpeechWish(text, voice=voice, seed=body.seed, stream=False)
            speech = await prepare(self.speaker, wish, info)
            samples = await speech.whole(recording)
            with recording.encoding():
                content = await asyncio.to_thread(encode_whole, PREVIEW_FORMAT, samples, speech.sample_rate)
            recording.finished("ok")
        media_type = coded_as(PREVIEW_FORMAT, speech.sample_rate).content_type
        return Response(content, media_type=media_type, headers={"X-Seed": str(speech.seed)})

    def _store(self) -> VoiceStore:
        if self.speaker.voices is None:
            message = "This server saves no voices: its operator has not set COSYSERVE_VOICES."
            raise ApiError(501, "voice_store_off", message)
        return self.speaker.voices

    async def _changeable(self, voice: str) -> ModelInfo:
        info = await self.speaker.backend.describe()
        if any(preset.id == voice for preset in info.voices):
            raise ApiError(409, "voice_is_preset", f"{voice!r} is a preset of the model; it stays.", "voice_id")
        return info


def _check_free(name: str, info: ModelInfo) -> None:
    """A saved voice never hides a preset, nor is hidden by one."""
    with at_fault(codes=_AT_FAULT):
        name = checked_name(name)
    if name == INLINE_VOICE:
        raise ApiError(400, "invalid_value", f"{INLINE_VOICE!r} stands for ref_audio; choose another name.", "name")
    if name in {preset.id for preset in info.voices}:
        raise ApiError(409, "voice_is_preset", f"{name!r} is a preset of the model; choose another name.", "name")


def _has_body(request: Request) -> bool:
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _json_document(body: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": body.model_json_schema()}}}


def _form_document() -> dict[str, Any]:
    schema = VoiceForm.model_json_schema()
    schema["properties"] = {"audio_sample": _SAMPLE, **schema["properties"]}
    schema["required"] = ["audio_sample", *schema["required"]]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
