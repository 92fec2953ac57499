"""`GET /v1/models`: what is served, what it can do and within which limits."""

from __future__ import annotations

from fastapi import APIRouter

from api.backend import Backend
from api.errors import ApiError
from api.names import served_names
from api.schema import MAX_INSTRUCTIONS
from api.wish import MAX_PITCH, MAX_SAMPLE_RATE, MAX_SPEED, MIN_PITCH, MIN_SAMPLE_RATE, MIN_SPEED, check_model
from audio.decode import MAX_BYTES, MAX_SECONDS, MIN_SECONDS
from audio.encode import FORMATS
from runners.request import ModelInfo
from text.frontend import MAX_INPUT_CHARS


def router(backend: Backend) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/models")
    async def models() -> dict:
        """The served model, in OpenAI's list shape; `models` is the list of KServe's v1 protocol."""
        info = await backend.describe()
        return {"object": "list", "data": [_model(info)], "models": served_names(info)}

    @routes.get("/v1/models/{model_id:path}")
    async def model(model_id: str) -> dict:
        """The served model; `name` and `ready` are KServe's."""
        info = await backend.describe()
        check_model(model_id, info)
        if not await backend.is_ready():
            raise ApiError(503, "loading", "The model is not ready. Try again shortly.", "model")
        return {**_model(info), "name": model_id, "ready": True}

    return routes


def _model(info: ModelInfo) -> dict:
    return {
        "id": info.name,
        "object": "model",
        "created": 0,
        "owned_by": "cosyserve",
        "version": info.version,
        "sample_rate": info.sample_rate,
        "supported_modes": list(info.modes),
        "languages": list(info.languages),
        "revision": info.revision,
        "response_formats": list(FORMATS),
        "limits": {
            "input_characters": MAX_INPUT_CHARS,
            "instruction_characters": MAX_INSTRUCTIONS,
            "ref_audio_seconds": [MIN_SECONDS, MAX_SECONDS],
            "ref_audio_bytes": MAX_BYTES,
            "speed": [MIN_SPEED, MAX_SPEED],
            "pitch": [MIN_PITCH, MAX_PITCH],
            "sample_rate": [MIN_SAMPLE_RATE, MAX_SAMPLE_RATE],
        },
    }
