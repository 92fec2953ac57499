"""KServe's v1 protocol: `:predict` with speech fields as instances, and liveness at `/`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import Match, Route
from starlette.types import Scope

from api.connection import run_while_connected
from api.errors import ApiError
from api.oip.body import read_json
from api.oip.errors import answered
from api.oip.fields import SpeechFields
from api.oip.inference import MAX_ANSWER_SAMPLES, Inference, recorded
from api.oip.models import ServedModel
from api.oip.rest import read_whole
from api.schema import validated
from api.telemetry import Recording

MAX_INSTANCES = 8


class PredictBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instances: Annotated[list[SpeechFields], Field(min_length=1, max_length=MAX_INSTANCES)]


def router(inference: Inference) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/models/{name}:predict",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"type": "object", "required": ["instances"]}}},
            }
        },
    )
    async def predict(request: Request, name: str) -> Response:
        """Speak each of `instances`. One that fails fails them all."""

        async def work() -> Response:
            data = await read_whole(request)
            return await run_while_connected(request, _predict(inference, name, data))

        return await answered(work())

    @routes.post("/v1/models/{name}:explain", include_in_schema=False)
    async def explain(name: str) -> Response:
        async def work() -> Response:
            await inference.model(name)
            raise ApiError(501, "explain_unsupported", "There is nothing to explain: use :predict.")

        return await answered(work())

    return routes


async def _predict(inference: Inference, name: str, data: bytes) -> Response:
    with recorded() as recording:
        body = validated(read_json(data), PredictBody)
        model = await inference.model(name)
        limit = MAX_ANSWER_SAMPLES // len(body.instances)
        tasks = [
            asyncio.ensure_future(_speak(inference, model, instance, recording, limit)) for instance in body.instances
        ]
        try:
            predictions = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    inference.answered[model.name] += 1
    return JSONResponse({"predictions": predictions})


async def _speak(
    inference: Inference, model: ServedModel, instance: SpeechFields, recording: Recording, limit: int
) -> dict[str, Any]:
    audio = instance.audio(model.sample_rate)
    spoken = await inference.speak(instance.wish(stream=False), audio, recording, limit)
    return instance.answer(spoken, model.sample_rate)


class Liveness(Route):
    """`GET /` for who does not ask for a page, as v1 clients do; a browser still gets the page that is there."""

    def __init__(self) -> None:
        async def alive(request: Request) -> Response:
            return JSONResponse({"status": "alive"})

        super().__init__("/", alive, methods=["GET"], include_in_schema=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        accepted = b",".join(value for name, value in scope.get("headers", ()) if name == b"accept")
        if scope.get("method") != "GET" or b"text/html" in accepted:
            return Match.NONE, {}
        return super().matches(scope)
