"""From what a client wants spoken to the engine's request and its samples: the same whatever protocol asked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from api.backend import Backend
from api.errors import ApiError
from api.references import Reference, ReferenceVoices
from api.schema import MAX_INSTRUCTIONS, MAX_REF_TEXT, MAX_SEED
from api.telemetry import Recording
from runners.frames import Frame, FrameKind
from runners.request import ModelInfo, SpeechRequest
from text.clean import clean
from text.errors import TextError

Item = TypeVar("Item")
MIN_SPEED, MAX_SPEED = 0.25, 4.0
# A name for the `voice` field that SDKs insist on, when ref_audio brings the voice.
INLINE_VOICE = "inline"


@dataclass(frozen=True)
class SpeechWish:
    """What is to be spoken and how. `seed` None: any; `voice` None or "": the model's own, or that of `ref_audio`."""

    text: str
    voice: str | None = None
    speed: float = 1.0
    seed: int | None = None
    instructions: str | None = None
    ref_audio: Reference | None = None
    ref_text: str | None = None
    stream: bool = True


def check_wish(wish: SpeechWish, info: ModelInfo) -> None:
    """Refuse what can be refused before any work. Raises ApiError; `param` is the field of SpeechWish."""
    if not MIN_SPEED <= wish.speed <= MAX_SPEED:
        message = f"speed must be from {MIN_SPEED} to {MAX_SPEED}, not {wish.speed}."
        raise ApiError(400, "invalid_value", message, "speed")
    if wish.seed is not None and not 0 <= wish.seed <= MAX_SEED:
        raise ApiError(400, "invalid_value", f"seed must be from 0 to {MAX_SEED}.", "seed")
    for field, value, limit in (
        ("instructions", wish.instructions, MAX_INSTRUCTIONS),
        ("ref_text", wish.ref_text, MAX_REF_TEXT),
    ):
        if value is not None and len(value) > limit:
            raise ApiError(400, "invalid_value", f"{field} has {len(value):,} characters, over {limit:,}.", field)
    if wish.ref_text is not None and wish.instructions is not None:
        raise ApiError(400, "invalid_value", "instructions take no transcript: leave ref_text out.", "ref_text")
    if wish.instructions is not None and "instruct" not in info.modes:
        raise ApiError(400, "unsupported_parameter", "This model does not follow instructions.", "instructions")
    if wish.ref_text is not None and wish.ref_audio is None:
        raise ApiError(400, "invalid_value", "ref_text is the transcript of ref_audio, which is missing.", "ref_text")
    if wish.ref_audio is not None and wish.voice not in (None, "", INLINE_VOICE):
        message = f"Give voice or ref_audio, not both (voice {INLINE_VOICE!r} may stand beside ref_audio)."
        raise ApiError(400, "voice_conflict", message, "voice")
    names = [voice.id for voice in info.voices]
    if wish.ref_audio is None and wish.voice == INLINE_VOICE and INLINE_VOICE not in names:
        raise ApiError(400, "voice_required", f"voice {INLINE_VOICE!r} needs ref_audio.", "ref_audio")
    if wish.ref_audio is None and wish.voice and wish.voice not in names:
        known = ", ".join(names) or "none; give ref_audio"
        raise ApiError(404, "voice_not_found", f"No voice {wish.voice!r}. Known voices: {known}.", "voice")


def check_format(audio_format: str, formats: Sequence[str], field: str) -> None:
    """Raises ApiError unsupported_format."""
    if audio_format not in formats:
        message = f"No format {audio_format!r}; there are {', '.join(formats)}."
        raise ApiError(400, "unsupported_format", message, field)


async def speech_request(
    backend: Backend, references: ReferenceVoices, wish: SpeechWish, info: ModelInfo
) -> SpeechRequest:
    """The engine's request for a wish that `check_wish` let pass.

    Raises TextError, AudioError, ApiError, RequestError.
    """
    segments = await asyncio.to_thread(backend.frontend.segments, wish.text)
    instructions = None
    if wish.instructions is not None:
        instructions = clean(wish.instructions)
        if not instructions:
            raise ApiError(400, "invalid_value", "instructions say nothing.", "instructions")
    voice, conditioning, transcript = wish.voice or info.default_voice, None, None
    if wish.ref_audio is not None:
        voice = None
        conditioning = await references.conditioning(wish.ref_audio)
        transcript = await _transcript(backend, wish.ref_text) if wish.ref_text is not None else None
    return SpeechRequest(
        segments=tuple(segment.tokens_text for segment in segments),
        voice=voice,
        conditioning=conditioning,
        prompt_text=transcript,
        instructions=instructions,
        stream=wish.stream,
        speed=wish.speed,
        seed=wish.seed if wish.seed is not None else secrets.randbelow(2**32),
    )


async def _transcript(backend: Backend, text: str) -> str:
    try:
        transcript = await asyncio.to_thread(backend.frontend.prompt_text, text)
    except TextError as error:
        raise ApiError(400, error.code, error.message, "ref_text") from error
    if not transcript:
        raise ApiError(400, "invalid_value", "ref_text has no words; leave it out to clone without one.", "ref_text")
    return transcript


async def speak(
    backend: Backend, speech: SpeechRequest, recording: Recording, max_samples: int | None = None
) -> tuple[np.ndarray, dict[str, Any]]:
    """All samples `[L]` float32 and the END frame's fields.

    Raises RequestError, and ApiError answer_too_long as soon as there are more than `max_samples`.
    """
    audio, summary = bytearray(), {}  # grows in place: pieces that are joined at the end would be held twice
    async with aclosing(backend.stream(speech)) as frames:
        async for frame in frames:
            if frame.kind is not FrameKind.AUDIO:
                summary = frame.json()
                continue
            audio += frame.payload
            recording.audio(len(frame.payload) // 4)
            if max_samples is not None and len(audio) // 4 > max_samples:
                message = (
                    f"The answer is over {max_samples:,} samples: send less text, or take binary data or a stream."
                )
                raise ApiError(400, "answer_too_long", message)
    return np.frombuffer(audio, np.float32), summary


async def first_of(stream: AsyncGenerator[Item, None]) -> Item:
    """The item that decides a stream's status: what fails before any audio is a proper error response."""
    try:
        return await anext(stream)
    except BaseException:
        await stream.aclose()
        raise


async def samples_of(
    first: Frame, frames: AsyncGenerator[Frame, None], recording: Recording, end: list[Frame] | None = None
) -> AsyncGenerator[np.ndarray, None]:
    """`[L]` float32 blocks, one per hop; the END frame goes into `end`."""
    frame: Frame | None = first
    while frame is not None:
        if frame.kind is FrameKind.AUDIO:
            recording.audio(len(frame.payload) // 4, streamed=True)
            yield np.frombuffer(frame.payload, np.float32)
        elif end is not None:
            end.append(frame)
        frame = await anext(frames, None)
