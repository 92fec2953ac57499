"""The Open Inference Protocol v2 over REST: health, metadata, inference, and the repository calls."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from api.arrival import parsed, read_bytes
from api.connection import run_while_connected
from api.errors import ApiError
from api.oip import metadata
from api.oip.body import HEADER_LENGTH, infer_response, read_infer_request, read_json, wants_binary
from api.oip.errors import answered
from api.oip.inference import Inference, recorded
from api.oip.models import VERSION

NOT_READY = "The server is not ready."
_MODEL = "/v2/models/{name}"
_VERSION = "/v2/models/{name}/versions/{version}"


def router(inference: Inference) -> APIRouter:
    routes = APIRouter()
    _add_health(routes, inference)
    _add_models(routes, inference)
    _add_repository(routes, inference)
    return routes


def fallback() -> APIRouter:
    """What no other route below /v2 takes; to be included after them."""
    routes = APIRouter()
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]

    @routes.api_route("/v2/{path:path}", methods=methods, include_in_schema=False)
    async def unknown(path: str) -> Response:
        async def work() -> Response:
            raise ApiError(404, "not_found", f"There is no /v2/{path} here, or not with this method.")

        return await answered(work())

    return routes


def _add_health(routes: APIRouter, inference: Inference) -> None:
    @routes.get("/v2")
    async def server() -> dict[str, Any]:
        """The server's name, version and protocol extensions."""
        return metadata.server()

    @routes.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @routes.get("/v2/health/ready")
    async def ready() -> Response:
        """200 once the model has spoken its warm-up, 503 before, and from SIGTERM on."""

        async def work() -> Response:
            if not await inference.backend.is_ready():
                raise ApiError(503, "not_ready", NOT_READY)
            return JSONResponse({"ready": True})

        return await answered(work())


def _add_models(routes: APIRouter, inference: Inference) -> None:
    @routes.get("/v2/models")
    async def models() -> Response:
        async def work() -> Response:
            names = dict.fromkeys(model.name for model in await inference.models())
            return JSONResponse({"models": list(names)})

        return await answered(work())

    @routes.get(_MODEL)
    @routes.get(_VERSION, include_in_schema=False)
    async def model(name: str, version: str = "") -> Response:
        """The model's tensors."""

        async def work() -> Response:
            return JSONResponse(metadata.model(await inference.model(name, version)))

        return await answered(work())

    @routes.get(_MODEL + "/config")
    @routes.get(_VERSION + "/config", include_in_schema=False)
    async def config(name: str, version: str = "") -> Response:
        """Triton's model configuration extension."""

        async def work() -> Response:
            return JSONResponse(metadata.config(await inference.model(name, version)))

        return await answered(work())

    @routes.get(_MODEL + "/ready")
    @routes.get(_VERSION + "/ready", include_in_schema=False)
    async def ready(name: str, version: str = "") -> Response:
        async def work() -> Response:
            if not await inference.is_ready(name, version):
                raise ApiError(503, "not_ready", NOT_READY)
            return JSONResponse({"name": name, "ready": True})

        return await answered(work())

    @routes.post(_MODEL + "/infer")
    @routes.post(_VERSION + "/infer", include_in_schema=False)
    async def infer(request: Request, name: str, version: str = "") -> Response:
        """Text and options as tensors in, audio as a tensor out; JSON, or with binary tensors after the JSON."""

        async def work() -> Response:
            data = await read_whole(request)
            return await run_while_connected(request, _infer(inference, name, version, data, request))

        return await answered(work())


async def _infer(inference: Inference, name: str, version: str, data: bytes, request: Request) -> Response:
    with recorded() as recording:
        header_length = request.headers.get(HEADER_LENGTH)
        asked = await parsed(partial(read_infer_request, header_length=header_length), data)
        model = await inference.model(name, version, tuple(asked.inputs))
        listed = [spec.name for spec in model.outputs if not wants_binary(asked, spec.name)]
        tensors = await inference.infer(model, asked, listed, recording)
        head = {"model_name": model.name, "model_version": VERSION}
        content, length = await infer_response(head, tensors, asked)
    if length is None:
        return Response(content, media_type="application/json")
    return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(length)})


def _add_repository(routes: APIRouter, inference: Inference) -> None:
    @routes.post("/v2/repository/models/{name}/load")
    async def load(request: Request, name: str) -> Response:
        """The served model is loaded; there is no other."""

        async def work() -> Response:
            data = await read_whole(request)
            await check_load(inference, name, bool(data and (await parsed(read_json, data)).get("parameters")))
            return JSONResponse({"name": name, "load": True})

        return await answered(work())

    @routes.post("/v2/repository/models/{name}/unload")
    async def unload(name: str) -> Response:
        async def work() -> Response:
            await inference.model(name)
            raise unload_refused(name)

        return await answered(work())


async def check_load(inference: Inference, name: str, overrides: bool) -> None:
    """Raises ApiError for a model that is not the served one, and for a configuration that would override its own."""
    await inference.model(name)
    if overrides:
        raise ApiError(400, "unsupported_parameter", f"{name!r} takes no configuration with its load call.")


def unload_refused(name: str) -> ApiError:
    message = f"{name!r} is what this server was started for and stays loaded: stop the server instead."
    return ApiError(501, "unload_unsupported", message)


async def read_whole(request: Request) -> bytes:
    """The body. Raises ApiError unsupported_encoding, and those of `read_bytes`."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ApiError(415, "unsupported_encoding", f"Bodies in content encoding {encoding!r} are not read.")
    try:
        return await read_bytes(request)
    except ClientDisconnect:
        raise ApiError(499, "client_closed_request", "The client left in the middle of its upload.") from None
