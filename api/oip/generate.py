"""Triton's generate extension: speech from plain JSON, as one object or as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from api.arrival import parsed
from api.connection import run_while_connected
from api.engine_stream import EngineStream
from api.errors import ApiError
from api.oip.body import read_json
from api.oip.errors import answered, known, sentence
from api.oip.fields import SpeechFields
from api.oip.formats import AudioTensor
from api.oip.inference import ROUTE, Inference, recorded
from api.oip.models import VERSION, ServedModel
from api.oip.rest import read_whole
from api.oip.tensors import Tensor
from api.schema import validated
from api.synthesis import Summary, first_of
from api.telemetry import Recording, failure_recorded

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SpeechFields.model_json_schema()}},
    }
}


def router(inference: Inference) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v2/models/{name}/generate", openapi_extra=_BODY)
    @routes.post("/v2/models/{name}/versions/{version}/generate", include_in_schema=False)
    async def generate(request: Request, name: str, version: str = "") -> Response:
        """Speak `text_input`; the answer holds a whole file as base64."""

        async def work() -> Response:
            data = await read_whole(request)
            return await run_while_connected(request, _whole(inference, name, version, data))

        return await answered(work())

    @routes.post("/v2/models/{name}/generate_stream", openapi_extra=_BODY)
    @routes.post("/v2/models/{name}/versions/{version}/generate_stream", include_in_schema=False)
    async def generate_stream(request: Request, name: str, version: str = "") -> Response:
        """Speak `text_input` in events as it is made; the last event has `final` true, or is an `error`."""

        async def work() -> Response:
            data = await read_whole(request)
            return await run_while_connected(request, _streamed(inference, name, version, data))

        return await answered(work())

    return routes


def read_fields(data: bytes) -> SpeechFields:
    """The speech fields of a generate request: `text_input` or `text`, the others beside it or in `parameters`."""
    values = read_json(data)
    parameters = values.pop("parameters", None)
    if not isinstance(parameters, dict | None):
        raise ApiError(400, "invalid_type", "`parameters` must be an object.", "parameters")
    for name, value in (parameters or {}).items():
        if name in values:
            raise ApiError(400, "invalid_value", f"{name!r} is both in and beside `parameters`.", name)
        values[name] = value
    if "text_input" in values:
        if "text" in values:
            raise ApiError(400, "invalid_value", "`text_input` and `text` are the same: give one.", "text")
        values["text"] = values.pop("text_input")
    return validated(values, SpeechFields)


async def _whole(inference: Inference, name: str, version: str, data: bytes) -> Response:
    with recorded() as recording:
        fields = await parsed(read_fields, data)
        model = await inference.model(name, version)
        audio = fields.audio(model.sample_rate)
        spoken = await inference.speak(fields.wish(stream=False), audio, recording)
    inference.answered[model.name] += 1
    return await asyncio.to_thread(JSONResponse, {**_head(model), **fields.answer(spoken, audio.sample_rate)})


async def _streamed(inference: Inference, name: str, version: str, data: bytes) -> Response:
    recording = Recording(ROUTE)
    end: list[Summary] = []
    with failure_recorded(recording):
        fields = await parsed(read_fields, data)
        model = await inference.model(name, version)
        form = fields.audio(model.sample_rate)
        hops = inference.stream(fields.wish(stream=True), form, recording, end)
        first = await first_of(hops)
    return EngineStream(
        _events(inference, model, form, first, hops, end, recording),
        hops,
        recording,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    inference: Inference,
    model: ServedModel,
    form: AudioTensor,
    first: Tensor,
    hops: AsyncGenerator[Tensor, None],
    end: list[Summary],
    recording: Recording,
) -> AsyncGenerator[bytes, None]:
    """One event per hop, then one with `final`; or one with `error`."""

    def event(**values: Any) -> bytes:
        return f"data: {json.dumps(values)}\n\n".encode()

    def audio(tensor: Tensor) -> bytes:
        text = tensor.data[0].decode()
        return event(**_head(model), audio=text, sample_rate=form.sample_rate, format=form.file_format)

    try:
        yield audio(first)
        async for tensor in hops:
            yield audio(tensor)
    except Exception as error:
        problem = known(error)
        recording.finished(problem.code)
        yield event(error=sentence(problem))
        return
    inference.answered[model.name] += 1
    recording.finished("ok")
    yield event(**_head(model), audio="", final=True, finish_reason=end[0].finish_reason)


def _head(model: ServedModel) -> dict[str, str]:
    return {"model_name": model.name, "model_version": VERSION}
