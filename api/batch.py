"""`POST /v1/audio/speech/batch`: up to 32 texts in one request, each with its own answer or error."""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from api.answer_models import Ending, Error
from api.answers import ending
from api.arrival import parsed, read_bytes
from api.bodies import wants_segments, wish_of
from api.connection import run_while_connected
from api.errors import ApiError, as_api_error
from api.limits import count_request
from api.schema import SpokenBody, json_schema, read_object, validated
from api.synthesis import Room, Speaker, prepare
from api.telemetry import Recording, failure_recorded
from api.wish import check_format, check_model
from audio.encode import FORMATS, coded_as, encode_whole
from runners.request import ModelInfo

logger = logging.getLogger("cosyserve.api")

ROUTE = "batch"
MAX_ITEMS = 32
_AT_ONCE = 4
"""Items inside the engine: more from one client would take the places of others."""


class BatchSuccess(Ending):
    """An item that was spoken."""

    index: int = Field(description="That of the item.")
    status: Literal["success"]
    audio_data: str = Field(description="The whole file as base64.")
    media_type: str
    sample_rate: int
    duration_s: float
    seed: int


class BatchError(Error):
    """An item that was not."""

    index: int = Field(description="That of the item.")
    status: Literal["error"]


class BatchAnswer(BaseModel):
    id: str
    results: list[Annotated[BatchSuccess | BatchError, Field(discriminator="status")]] = Field(
        description="In the order of the items."
    )
    total: int
    succeeded: int
    failed: int


def router(speaker: Speaker) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/audio/speech/batch", response_model=BatchAnswer, openapi_extra=_document())
    async def batch(request: Request) -> Response:
        """Speak all `items`, each with the fields of the speech endpoint, beside which those of all items stand.

        `results` are in the order of the items: a whole file as base64 in `audio_data`, or an `error`.
        """
        items = await parsed(read_items, await read_bytes(request))
        return await run_while_connected(request, _speak(speaker, items))

    return routes


def read_items(data: bytes) -> list[dict[str, Any]]:
    """Each item's fields, with those of all items where it has none of its own; not validated yet. Raises ApiError."""
    common = read_object(data)
    if "items" not in common:
        raise ApiError(400, "missing_parameter", "`items` is required.", "items")
    items = common.pop("items")
    if "input" in common:
        raise ApiError(400, "unknown_parameter", "There is no parameter `input` beside `items`.", "input")
    validated({"input": "", **common}, SpokenBody)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ApiError(422, "invalid_type", "`items` must be a list of objects.", "items")
    if not 1 <= len(items) <= MAX_ITEMS:
        raise ApiError(400, "invalid_value", f"`items` has {len(items):,} items, not 1 to {MAX_ITEMS}.", "items")
    return [{**common, **item} for item in items]


async def _speak(speaker: Speaker, items: list[dict[str, Any]]) -> Response:
    info = await speaker.backend.describe()
    places = asyncio.Semaphore(_AT_ONCE)
    room = Room(refusal="The answers are over {most:,} samples together: send fewer items, or shorter ones.")

    async def result(index: int, values: dict[str, Any]) -> dict[str, Any]:
        try:
            async with places:
                return {"index": index, "status": "success", **await _item(speaker, info, index, values, room)}
        except Exception as error:
            problem = as_api_error(error)
            if problem.status >= 500:
                logger.warning("an item of a batch ended with %s", problem.code, exc_info=error)
            return {"index": index, "status": "error", **problem.body()}

    results = await asyncio.gather(*(result(index, values) for index, values in enumerate(items)))
    succeeded = sum(one["status"] == "success" for one in results)
    answer = {"total": len(items), "succeeded": succeeded, "failed": len(items) - succeeded}
    content = {"id": f"batch_{uuid.uuid4().hex}", "results": results, **answer}
    return await asyncio.to_thread(JSONResponse, content)


async def _item(speaker: Speaker, info: ModelInfo, index: int, values: dict[str, Any], room: Room) -> dict[str, Any]:
    recording = Recording(ROUTE)
    with failure_recorded(recording):
        if index:  # the first was counted when the batch came
            count_request()
        body = validated(values, SpokenBody)
        check_model(body.model, info)
        check_format(body.response_format, FORMATS, "response_format")
        timed = wants_segments(body)
        speech = await prepare(speaker, wish_of(body, stream=False), info)
        samples = await speech.whole(recording, room)
        encode = partial(encode_whole, body.response_format, samples, speech.sample_rate)
        with recording.encoding():
            content = await asyncio.to_thread(lambda: base64.b64encode(encode()).decode())
        recording.finished("ok")
    coded = coded_as(body.response_format, speech.sample_rate)
    return {
        "audio_data": content,
        "media_type": coded.content_type,
        "sample_rate": coded.sample_rate,
        "duration_s": round(len(samples) / speech.sample_rate, 3),
        "seed": speech.seed,
        **ending(speech, timed=timed),
    }


def _document() -> dict[str, Any]:
    item = json_schema(SpokenBody)
    common = {name: field for name, field in item["properties"].items() if name != "input"}
    items = {"type": "array", "items": {**item, "required": []}, "minItems": 1, "maxItems": MAX_ITEMS}
    schema = {
        "type": "object",
        "required": ["items"],
        "additionalProperties": False,
        "properties": {"items": items, **common},
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
