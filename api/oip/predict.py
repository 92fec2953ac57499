"""KServe's v1 protocol: `:predict` with speech fields as instances, and liveness at `/`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import Match, Route
from starlette.types import Scope

from api.arrival import parsed
from api.connection import run_while_connected
from api.errors import ApiError
from api.limits import count_request
from api.oip.body import read_json
from api.oip.errors import answered
from api.oip.fields import SpeechFields
from api.oip.inference import Inference, recorded
from api.oip.rest import read_whole
from api.schema import validated
from api.synthesis import Room

MAX_INSTANCES = 8


class PredictBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instances: Annotated[list[Any], Field(min_length=1, max_length=MAX_INSTANCES)]


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
        """Speak `instances`, one after the other. One that fails fails them all."""

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
        instances = await parsed(read_instances, data)
        model = await inference.model(name)
        wanted = [(instance.wish(stream=False), instance.audio(model.sample_rate)) for instance in instances]
        room = Room(refusal="The answers are over {most:,} samples together: send fewer instances, or shorter ones.")
        predictions: list[dict[str, Any]] = []
        # All at once, they would be several requests to the engine that were admitted as one.
        for instance, (wish, audio) in zip(instances, wanted, strict=True):
            if predictions:  # the first was counted when the request came
                count_request()
            spoken = await inference.speak(wish, audio, recording, room)
            predictions.append(instance.answer(spoken, audio.sample_rate))
    inference.answered[model.name] += 1
    return await asyncio.to_thread(JSONResponse, {"predictions": predictions})


def read_instances(data: bytes) -> list[SpeechFields]:
    """What a predict request wants spoken, at least one. Raises ApiError."""
    instances = validated(read_json(data), PredictBody).instances
    return [validated(values, SpeechFields, ("instances", position)) for position, values in enumerate(instances)]


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
