"""The public surface put together: one ASGI app that the entry service mounts at /."""

from __future__ import annotations

import asyncio
import logging
import uuid

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors, listing, metrics, speech
from api.backend import Backend
from api.connection import CLIENT_CLOSED_REQUEST
from api.oip import errors as oip_errors
from api.oip import routes as oip
from api.oip.inference import Inference
from api.references import ReferenceVoices

logger = logging.getLogger("cosyserve.api")

MAX_REQUEST_ID = 128


def create_app(backend: Backend) -> FastAPI:
    """The API over `backend`. A FastAPI instance, as BentoML looks at its routes to merge them with its own.

    Its `state.inference` is what a gRPC server beside it shares with it. Once `state.draining` is set, requests that
    have not arrived are waited for no longer.
    """
    # BentoML serves the merged OpenAPI document and its page; a second pair would shadow them.
    app = FastAPI(title="CosyServe", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.draining = asyncio.Event()
    errors.install(app, _refused)
    references = ReferenceVoices(backend)
    app.include_router(speech.router(backend, references))
    app.include_router(listing.router(backend))
    app.include_router(metrics.router())
    app.state.inference = inference = Inference(backend, references)
    oip.install(app, inference)

    @app.api_route("/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def unknown(path: str) -> None:
        raise errors.ApiError(404, "not_found", f"There is no /v1/{path} here, or not with this method.")

    app.add_middleware(RequestId)
    return app


def _refused(problem: errors.ApiError, scope: Scope) -> JSONResponse:
    """The response to `problem`, in the shape of the protocol that the request speaks."""
    return oip_errors.error_response(problem) if oip_errors.is_inference(scope) else problem.response()


class RequestId:
    """Gives every response the client's `X-Request-Id` or its own, and errors that nobody expected a response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        usable = 0 < len(given) <= MAX_REQUEST_ID and given.isascii() and given.isprintable()
        request_id = given if usable else uuid.uuid4().hex

        begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # in the middle of its upload
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send_with_id)
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            if begun:  # the broken body tells the client
                raise
            await _refused(errors.as_api_error(error), scope)(scope, receive, send_with_id)
