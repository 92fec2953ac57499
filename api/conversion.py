"""`POST /v1/audio/voice-conversion`: what was said in a recording, in another voice."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import Field, StrictBool

from api.answers import Delivery, answer
from api.bodies import FORM, from_fields
from api.casting import Casting, Role
from api.connection import run_while_connected
from api.errors import ApiError
from api.form import read_form
from api.limits import spend_characters
from api.parts import Part
from api.schema import Fields, Number, Whole, json_schema
from api.synthesis import Speaker, Speech, within
from api.telemetry import Recording, failure_recorded
from api.threads import DECODERS, run_in
from api.wish import PLAIN_VOLUME, SpeechWish, check_model, check_wish
from audio.decode import MAX_SECONDS, Audio, check_reference, decode_audio
from audio.errors import AudioError
from runners.request import ModelInfo, SpeechRequest

ROUTE = "voice_conversion"
MAX_SOURCE_SECONDS = 300.0
SOURCE_RATE = 24_000
"""What is higher is resampled while it is decoded: the speech tokenizer hears up to 8 kHz."""
CHARACTERS_PER_SECOND = 15
"""Of the source, as they count for a key: what English has in a second of speech."""
_AT_ONCE = 4
"""Sources decoded and encoded at once: each takes up to 40 MB, and the encoder serves others too."""
_SHIFT_SECONDS = 2.0  # a long recording is cut where it is quietest, so far from even pieces
_FRAME_SECONDS = 0.025


class ConversionBody(Fields):
    """The fields of `POST /v1/audio/voice-conversion` beside `source_audio` and `ref_audio`."""

    model: str | None = Field(None, description="The served model's id; may be left out.")
    voice: str | None = Field(None, description="A voice made from a recording, by id or name; or send ref_audio.")
    response_format: str = Field("wav", description="wav, pcm (16 bit little-endian mono), mp3, opus, flac or aac.")
    stream: StrictBool = Field(True, description="false: one buffered file with exact sizes in its header.")
    stream_format: Literal["audio", "sse"] = Field("audio", description="Raw audio, or server-sent events.")
    speed: Number = Field(1.0, description="0.25 to 4.0; 2.0 is twice as fast.")
    volume: Number = Field(PLAIN_VOLUME, description="0 to 100; 50 leaves the model's loudness.")
    pitch: Number = Field(1.0, description="0.5 to 2.0 times the voice's own.")
    sample_rate: Whole | None = Field(None, description="8000 to 48000 Hz; default: the model's.")
    seed: Whole | None = Field(None, description="Same seed, same audio.")
    timeout_s: Number | None = Field(None, description="Seconds the whole speech may take.")


def router(speaker: Speaker) -> APIRouter:
    routes = APIRouter()
    converter = _Converter(speaker)

    @routes.post("/v1/audio/voice-conversion", openapi_extra=_document())
    async def convert(request: Request) -> Response:
        """Say what is said in `source_audio` in the voice of `voice` or `ref_audio`."""
        form = await read_form(request, "source_audio", ConversionBody.model_fields, ("ref_audio",))
        body = from_fields(form.fields, ConversionBody)
        if not (source := form.files.get("source_audio")):
            raise ApiError(400, "missing_parameter", "`source_audio` is required.", "source_audio")
        return await run_while_connected(request, converter.convert(body, source, form.files.get("ref_audio")))

    return routes


class _Converter:
    """What the route does."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def convert(self, body: ConversionBody, source: bytes, reference: bytes | None) -> Response:
        recording = Recording(ROUTE)
        with failure_recorded(recording):
            info = await self._speaker.backend.describe()
            check_model(body.model, info)
            delivery = Delivery(body.response_format, body.stream, body.stream_format == "sse")
            wish = SpeechWish(
                text="",
                voice=body.voice,
                speed=body.speed,
                seed=body.seed,
                ref_audio=reference,
                stream=body.stream,
                sample_rate=body.sample_rate,
                volume=body.volume,
                pitch=body.pitch,
                timeout_s=body.timeout_s,
            )
            check_wish(wish, info)
            speech = await within(wish.timeout_s, self._prepared(wish, info, source))
            return await answer(speech, delivery, recording)

    async def _prepared(self, wish: SpeechWish, info: ModelInfo, source: bytes) -> Speech:
        began = time.monotonic()
        async with self._places:
            pieces = await run_in(DECODERS, _pieces, source)
            speaker = self._speaker
            role = await Casting(speaker.backend, speaker.references, speaker.voices, wish, info).role()
            _check_recorded(role, info)
            _charge(pieces)
            heard = time.monotonic()
            # One after the other: the pieces of one request must not fill the encoder's batch.
            voices = [await speaker.backend.encode(piece.samples.tobytes(), piece.sample_rate) for piece in pieces]
        seed = wish.seed if wish.seed is not None else secrets.randbelow(2**32)
        tokens = [tuple(voice.prompt_tokens.tolist()) for voice in voices]
        parts = [_part(piece, role, wish, seed) for piece in tokens]
        speech = Speech(speaker.backend, parts, wish, info, seed=seed, began=began)
        speech.seconds = {"voice": heard - began, "source": time.monotonic() - heard}
        return speech


def _part(tokens: tuple[int, ...], role: Role, wish: SpeechWish, seed: int) -> Part:
    request = SpeechRequest(
        voice=role.voice,
        conditioning=role.conditioning,
        source_tokens=tokens,
        stream=wish.stream,
        speed=wish.speed,
        seed=seed,
    )
    return Part(request, volume=wish.volume / PLAIN_VOLUME, pitch=wish.pitch)


def _check_recorded(role: Role, info: ModelInfo) -> None:
    """Only a voice that was made from a recording has what the flow needs of it. Raises ApiError."""
    if role.conditioning is not None:
        recorded = len(role.conditioning.prompt_tokens) > 0
    else:
        recorded = any(voice.id == role.voice and set(voice.modes) - {"preset"} for voice in info.voices)
    if not recorded:
        message = "This voice was not made from a recording; give another one, or ref_audio."
        raise ApiError(400, "unsupported_parameter", message, "voice")


def _charge(pieces: Sequence[Audio]) -> None:
    """Raises ApiError rate_limited, input_too_long."""
    try:
        spend_characters(math.ceil(CHARACTERS_PER_SECOND * sum(piece.duration for piece in pieces)))
    except ApiError as error:
        error.message = error.message.replace("The text has", "The source audio counts as")
        error.param = "source_audio"
        raise


def _pieces(source: bytes) -> list[Audio]:
    """The recording in pieces of at most 30 s, which is what the speech tokenizer was trained on. Raises ApiError."""
    try:
        audio = decode_audio(source, max_seconds=MAX_SOURCE_SECONDS, max_rate=SOURCE_RATE)
        check_reference(audio, max_seconds=MAX_SOURCE_SECONDS)
    except AudioError as error:
        message = error.message.replace("reference audio", "source audio")
        raise ApiError(400, error.code, message, "source_audio") from error
    return cut(audio)


def cut(audio: Audio) -> list[Audio]:
    """About equal pieces of at most 30 s, cut where it is quietest around there."""
    if audio.duration <= MAX_SECONDS:
        return [audio]
    count = int(np.ceil(audio.duration / (MAX_SECONDS - 2 * _SHIFT_SECONDS)))
    ends = [_quietest(audio, audio.samples.size * index // count) for index in range(1, count)]
    return [Audio(samples, audio.sample_rate) for samples in np.split(audio.samples, ends)]


def _quietest(audio: Audio, near: int) -> int:
    """The middle of the quietest 25 ms within 2 s of sample `near`."""
    frame, shift = round(_FRAME_SECONDS * audio.sample_rate), round(_SHIFT_SECONDS * audio.sample_rate)
    around = audio.samples[near - shift : near + shift]
    frames = around[: around.size // frame * frame].reshape(-1, frame)
    return near - shift + int(frames.std(axis=1).argmin()) * frame + frame // 2


def _document() -> dict[str, Any]:
    schema = json_schema(ConversionBody)
    sound = {"type": "string", "format": "binary"}
    files = {
        "source_audio": {**sound, "description": f"1 to {MAX_SOURCE_SECONDS:g} s of speech, up to 10 MB."},
        "ref_audio": {**sound, "description": "1 to 30 s of the voice to take, up to 10 MB."},
    }
    schema |= {"properties": {**files, **schema["properties"]}, "required": ["source_audio"]}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}
