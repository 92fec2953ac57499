"""`GET /v1/models` and `GET /v1/audio/voices`: what this server can be asked for."""

from __future__ import annotations

from fastapi import APIRouter

from api.backend import Backend
from api.errors import ApiError
from api.oip.models import served_names
from runners.request import ModelInfo


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
        if model_id != info.name and model_id not in served_names(info):
            raise ApiError(404, "model_not_found", f"No model {model_id!r}; this server has {info.name!r}.", "model")
        if not await backend.is_ready():
            raise ApiError(503, "loading", "The model is not ready. Try again shortly.", "model")
        return {**_model(info), "name": model_id, "ready": True}

    @routes.get("/v1/audio/voices")
    async def voices() -> dict:
        """The voices that `voice` takes, and the modes each can be used in."""
        info = await backend.describe()
        return {
            "voices": [
                {
                    "id": voice.id,
                    "name": voice.id,
                    "type": "preset",
                    "supported_modes": list(voice.modes),
                    "languages": list(info.languages),
                    "models": [info.name],
                    "default": voice.id == info.default_voice,
                }
                for voice in info.voices
            ]
        }

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
    }
