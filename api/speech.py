"""`POST /v1/audio/speech`: OpenAI's speech endpoint, streamed as audio or server-sent events, or buffered."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from api.backend import Backend
from api.connection import run_while_connected
from api.engine_stream import EngineStream
from api.errors import ApiError, as_api_error
from api.references import ReferenceVoices
from api.schema import SpeechBody, read_body
from api.synthesis import SpeechWish, check_format, check_wish, first_of, samples_of, speak, speech_request
from api.telemetry import Recording, failure_recorded
from audio.encode import FORMATS, Encoder, encode_whole, make_encoder
from runners.frames import Frame
from runners.request import ModelInfo, SpeechRequest

logger = logging.getLogger("cosyserve.api")


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
    with failure_recorded(recording):
        info = await backend.describe()
        _check(body, info)
        wish = _wish(body)
        check_wish(wish, info)
        speech = await speech_request(backend, references, wish, info)
        recording.started(info.sample_rate)
        if body.stream:
            return await _streamed(backend, speech, body, info, recording)
        return await _buffered(backend, speech, body, info, recording)


def _check(body: SpeechBody, info: ModelInfo) -> None:
    """Refuse what this endpoint cannot do. Raises ApiError."""
    if body.model and body.model not in (info.name, f"cosyvoice-{info.version}", f"cosyvoice{info.version}"):
        raise ApiError(404, "model_not_found", f"No model {body.model!r}; this server has {info.name!r}.", "model")
    check_format(body.response_format, FORMATS, "response_format")
    if not body.stream and body.stream_format == "sse":
        raise ApiError(400, "invalid_value", "stream_format sse needs stream true.", "stream")


def _wish(body: SpeechBody) -> SpeechWish:
    return SpeechWish(
        text=body.input,
        voice=body.voice,
        speed=body.speed,
        seed=body.seed,
        instructions=body.instructions,
        ref_audio=body.ref_audio,
        ref_text=body.ref_text,
        stream=body.stream,
    )


def _headers(info: ModelInfo, speech: SpeechRequest) -> dict[str, str]:
    return {"X-Model-Id": quote(info.name), "X-Seed": str(speech.seed), "X-Sample-Rate": str(info.sample_rate)}


async def _buffered(
    backend: Backend, speech: SpeechRequest, body: SpeechBody, info: ModelInfo, recording: Recording
) -> Response:
    samples, summary = await speak(backend, speech, recording)
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
    first = await first_of(frames)
    encoder = make_encoder(body.response_format, info.sample_rate)
    form = _events if body.stream_format == "sse" else _audio
    content_type = "text/event-stream" if body.stream_format == "sse" else encoder.content_type
    return EngineStream(
        form(first, frames, encoder, recording),
        frames,
        recording,
        media_type=content_type,
        headers={**_headers(info, speech), "Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _audio(
    first: Frame, frames: AsyncGenerator[Frame, None], encoder: Encoder, recording: Recording
) -> AsyncGenerator[bytes, None]:
    """The container's bytes. A failure breaks the chunked body off: it never looks like a finished file."""
    yield encoder.begin()
    async for samples in samples_of(first, frames, recording):
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
        async for samples in samples_of(first, frames, recording, end):
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
