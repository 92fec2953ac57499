"""`POST /v1/audio/speech`: OpenAI's speech endpoint, streamed as audio or server-sent events, or buffered."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.backend import Backend
from api.connection import run_while_connected
from api.errors import ApiError, as_api_error
from api.references import ReferenceVoices
from api.schema import MAX_SEED, SpeechBody, read_body
from api.telemetry import Recording
from audio.encode import FORMATS, Encoder, encode_whole, make_encoder
from runners.frames import Frame, FrameKind
from runners.request import ModelInfo, SpeechRequest
from text.clean import clean
from text.errors import TextError

logger = logging.getLogger("cosyserve.api")

MIN_SPEED, MAX_SPEED = 0.25, 4.0
# A name for the `voice` field that SDKs insist on, when ref_audio brings the voice.
INLINE_VOICE = "inline"


def router(backend: Backend, references: ReferenceVoices) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/audio/speech",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": SpeechBody.model_json_schema()}},
            }
        },
    )
    async def speech(request: Request) -> Response:
        """Speak `input`. Audio leaves as it is made; `stream: false` waits for a whole file."""
        body = await read_body(request, SpeechBody)
        return await run_while_connected(request, _speak(backend, references, body))

    return routes


async def _speak(backend: Backend, references: ReferenceVoices, body: SpeechBody) -> Response:
    recording = Recording("speech")
    try:
        info = await backend.describe()
        _check(body, info)
        speech = await _request(backend, references, body, info)
        recording.started(info.sample_rate)
        if body.stream:
            return await _streamed(backend, speech, body, info, recording)
        return await _buffered(backend, speech, body, info, recording)
    except asyncio.CancelledError:
        recording.finished("cancelled")
        raise
    except Exception as error:
        recording.finished(as_api_error(error).code)
        raise


def _check(body: SpeechBody, info: ModelInfo) -> None:
    """Refuse what can be refused before any work. Raises ApiError."""
    if body.model and body.model not in (info.name, f"cosyvoice-{info.version}"):
        raise ApiError(404, "model_not_found", f"No model {body.model!r}; this server has {info.name!r}.", "model")
    if body.response_format not in FORMATS:
        known = ", ".join(FORMATS)
        message = f"No format {body.response_format!r}; there are {known}."
        raise ApiError(400, "unsupported_format", message, "response_format")
    if not MIN_SPEED <= body.speed <= MAX_SPEED:
        message = f"speed must be from {MIN_SPEED} to {MAX_SPEED}, not {body.speed}."
        raise ApiError(400, "invalid_value", message, "speed")
    if body.seed is not None and not 0 <= body.seed <= MAX_SEED:
        raise ApiError(400, "invalid_value", f"seed must be from 0 to {MAX_SEED}.", "seed")
    if body.ref_text is not None and body.instructions is not None:
        raise ApiError(400, "invalid_value", "instructions take no transcript: leave ref_text out.", "ref_text")
    if body.ref_text is not None and body.ref_audio is None:
        raise ApiError(400, "invalid_value", "ref_text is the transcript of ref_audio, which is missing.", "ref_text")
    if body.ref_audio is not None and body.voice not in (None, "", INLINE_VOICE):
        message = f"Give voice or ref_audio, not both (voice {INLINE_VOICE!r} may stand beside ref_audio)."
        raise ApiError(400, "voice_conflict", message, "voice")
    if not body.stream and body.stream_format == "sse":
        raise ApiError(400, "invalid_value", "stream_format sse needs stream true.", "stream")
    names = [voice.id for voice in info.voices]
    if body.ref_audio is None and body.voice and body.voice not in names:
        known = ", ".join(names) or "none; give ref_audio"
        raise ApiError(404, "voice_not_found", f"No voice {body.voice!r}. Known voices: {known}.", "voice")


async def _request(backend: Backend, references: ReferenceVoices, body: SpeechBody, info: ModelInfo) -> SpeechRequest:
    segments = await asyncio.to_thread(backend.frontend.segments, body.input)
    instructions = None
    if body.instructions is not None:
        instructions = clean(body.instructions)
        if not instructions:
            raise ApiError(400, "invalid_value", "instructions say nothing.", "instructions")
    voice, conditioning, transcript = body.voice or info.default_voice, None, None
    if body.ref_audio is not None:
        voice = None
        conditioning = await references.conditioning(body.ref_audio)
        transcript = await _transcript(backend, body.ref_text) if body.ref_text is not None else None
    return SpeechRequest(
        segments=tuple(segment.tokens_text for segment in segments),
        voice=voice,
        conditioning=conditioning,
        prompt_text=transcript,
        instructions=instructions,
        stream=body.stream,
        speed=body.speed,
        seed=body.seed if body.seed is not None else secrets.randbelow(2**32),
    )


async def _transcript(backend: Backend, text: str) -> str:
    try:
        transcript = await asyncio.to_thread(backend.frontend.prompt_text, text)
    except TextError as error:
        raise ApiError(400, error.code, error.message, "ref_text") from error
    if not transcript:
        raise ApiError(400, "invalid_value", "ref_text has no words; leave it out to clone without one.", "ref_text")
    return transcript


def _headers(info: ModelInfo, speech: SpeechRequest) -> dict[str, str]:
    return {"X-Model-Id": quote(info.name), "X-Seed": str(speech.seed), "X-Sample-Rate": str(info.sample_rate)}


async def _buffered(
    backend: Backend, speech: SpeechRequest, body: SpeechBody, info: ModelInfo, recording: Recording
) -> Response:
    pieces, summary = [], {}
    async with aclosing(backend.stream(speech)) as frames:
        async for frame in frames:
            if frame.kind is FrameKind.AUDIO:
                recording.audio(len(frame.payload) // 4)
                pieces.append(np.frombuffer(frame.payload, np.float32))
            else:
                summary = frame.json()
    samples = np.concatenate(pieces)
    content = await asyncio.to_thread(encode_whole, body.response_format, samples, info.sample_rate)
    recording.finished("ok")
    headers = _headers(info, speech)
    headers["X-Finish-Reason"] = summary["finish_reason"]
    headers["X-Audio-Duration-Ms"] = str(round(1000 * len(samples) / info.sample_rate))
    return Response(
        content, media_type=make_encoder(body.response_format, info.sample_rate).content_type, headers=headers
    )


async def _streamed(
    backend: Backend, speech: SpeechRequest, body: SpeechBody, info: ModelInfo, recording: Recording
) -> Response:
    frames = backend.stream(speech)
    # The first frame decides the status: what fails before any audio is a proper error response.
    try:
        first = await anext(frames)
    except BaseException:
        await frames.aclose()
        raise
    encoder = make_encoder(body.response_format, info.sample_rate)
    form = _events if body.stream_format == "sse" else _audio
    content_type = "text/event-stream" if body.stream_format == "sse" else encoder.content_type
    return _EngineStream(
        form(first, frames, encoder, recording),
        frames,
        recording,
        media_type=content_type,
        headers={**_headers(info, speech), "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


class _EngineStream(StreamingResponse):
    """A response that closes the engine's stream however it ends, also when the client left before the first byte."""

    def __init__(
        self, content: AsyncGenerator[bytes, None], frames: AsyncGenerator[Frame, None], recording: Recording, **options
    ) -> None:
        super().__init__(content, **options)
        self._content, self._frames, self._recording = content, frames, recording

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except Exception as error:
            self._recording.finished(as_api_error(error).code)
            raise
        finally:
            self._recording.finished("cancelled")  # unless the content has said how it ended
            await self._content.aclose()
            await self._frames.aclose()


async def _audio(
    first: Frame, frames: AsyncGenerator[Frame, None], encoder: Encoder, recording: Recording
) -> AsyncGenerator[bytes, None]:
    """The container's bytes. A failure breaks the chunked body off: it never looks like a finished file."""
    yield encoder.begin()
    async for samples in _samples(first, frames, recording):
        yield encoder.feed(samples)
    yield encoder.end()
    recording.finished("ok")


async def _events(
    first: Frame, frames: AsyncGenerator[Frame, None], encoder: Encoder, recording: Recording
) -> AsyncGenerator[bytes, None]:
    """OpenAI's `speech.audio.delta` events, then `speech.audio.done`, or `speech.audio.error`."""

    def event(kind: str, **fields) -> bytes:
        return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()

    def delta(data: bytes) -> bytes:
        return event("speech.audio.delta", audio=base64.b64encode(data).decode())

    end: list[Frame] = []
    try:
        if begin := encoder.begin():
            yield delta(begin)
        async for samples in _samples(first, frames, recording, end):
            if data := encoder.feed(samples):
                yield delta(data)
        if rest := encoder.end():
            yield delta(rest)
    except Exception as error:
        problem = as_api_error(error)
        logger.warning("a stream ended with %s", problem.code, exc_info=error)
        recording.finished(problem.code)
        yield event("speech.audio.error", **problem.body())
        return
    summary = end[0].json()
    usage = {"input_tokens": summary["text_tokens"], "output_tokens": summary["speech_tokens"]}
    usage["total_tokens"] = sum(usage.values())
    yield event("speech.audio.done", usage=usage, finish_reason=summary["finish_reason"])
    recording.finished("ok")


async def _samples(
    first: Frame, frames: AsyncGenerator[Frame, None], recording: Recording, end: list[Frame] | None = None
) -> AsyncGenerator[np.ndarray, None]:
    """`[L]` float32 blocks; the END frame goes into `end`."""
    frame: Frame | None = first
    while frame is not None:
        if frame.kind is FrameKind.AUDIO:
            recording.audio(len(frame.payload) // 4)
            yield np.frombuffer(frame.payload, np.float32)
        elif end is not None:
            end.append(frame)
        frame = await anext(frames, None)
