"""`POST /v1/audio/speech`: OpenAI's speech endpoint."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.answers import Delivery, answer
from api.bodies import read_speech, speech_document, wants_segments, wish_of
from api.connection import run_while_connected
from api.schema import SpeechBody
from api.synthesis import Speaker, prepare
from api.telemetry import Recording, failure_recorded
from api.wish import check_model


def router(speaker: Speaker) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/audio/speech", openapi_extra=speech_document())
    async def speech(request: Request) -> Response:
        """Speak `input`. Audio leaves as it is made; `stream: false` waits for a whole file, which comes inside JSON
        where the times of segments are asked for."""
        body, recorded = await read_speech(request)
        return await run_while_connected(request, _speak(speaker, body, recorded))

    return routes


async def _speak(speaker: Speaker, body: SpeechBody, recorded: bytes | None) -> Response:
    recording = Recording("speech")
    with failure_recorded(recording):
        info = await speaker.backend.describe()
        check_model(body.model, info)
        delivery = Delivery(body.response_format, body.stream, body.stream_format == "sse", wants_segments(body))
        speech = await prepare(speaker, wish_of(body, stream=body.stream, recording=recorded), info)
        return await answer(speech, delivery, recording)
