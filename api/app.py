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

from api import (
    batch,
    conversion,
    dashscope,
    dictionaries,
    documents,
    errors,
    listing,
    metrics,
    speech,
    text,
    ui,
    upstream,
    voices,
    websocket,
)
from api.arrival import WholeBodies
from api.auth import ApiKeys, KeyRing
from api.backend import Backend
from api.connection import CLIENT_CLOSED_REQUEST
from api.oip import errors as oip_errors
from api.oip import routes as oip
from api.oip.inference import Inference
from api.own_pages import OwnPages
from api.references import ReferenceVoices
from api.synthesis import Speaker
from runners.voice_store import VoiceStore

logger = logging.getLogger("cosyserve.api")

MAX_REQUEST_ID = 128


def create_app(backend: Backend, keys: KeyRing | None = None, *, local: bool = False) -> FastAPI:
    """The API over `backend`, for who has one of `keys`, or for everybody but the pages of other sites; `local`: under
    names of this machine only. A FastAPI instance, as BentoML looks at its routes to merge them with its own.

    Its `state.inference` is what a gRPC server beside it shares with it. Once `state.draining` is set, requests that
    have not arrived are waited for no longer.
    """
    # `documents` serves the OpenAPI document and its page: both load nothing from elsewhere.
    app = FastAPI(title="CosyServe", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.draining = asyncio.Event()
    errors.install(app, _refused)
    app.state.speaker = speaker = Speaker(
        backend,
        ReferenceVoices(backend),
        VoiceStore.from_environment(),
        dictionaries.DictionaryStore.from_environment(),
    )
    for router in (
        speech.router(speaker),
        batch.router(speaker),
        conversion.router(speaker),
        voices.router(speaker),
        dictionaries.router(speaker.dictionaries),
        text.router(speaker),
        websocket.router(speaker),
        dashscope.router(speaker),
        upstream.router(speaker),
        listing.router(backend),
        metrics.router(),
        ui.router(),
    ):
        app.include_router(router)
    app.state.inference = inference = Inference(speaker)
    oip.install(app, inference)
    app.include_router(documents.router(app))
    app.router.routes.append(documents.Unknown())

    # The last one is the outermost.
    app.add_middleware(WholeBodies, draining=app.state.draining)
    if keys is None:
        app.add_middleware(OwnPages, respond=_refused, local=local)
    else:
        app.add_middleware(ApiKeys, keys=keys, respond=_refused)
    app.add_middleware(RequestId)
    return app


def _refused(problem: errors.ApiError, scope: Scope) -> JSONResponse:
    """The response to `problem`, in the shape of the protocol that the request speaks."""
    return oip_errors.error_response(problem) if oip_errors.is_inference(scope) else problem.response()


class RequestId:
    """Gives every response the client's `X-Request-Id` or its own, and errors that nobody expected a response.

    Every response also says that browsers are to take it for what it claims to be.
    """

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
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # in the middle of its upload
            await Response(status_code=CLIENT_CLOSED_REQUEST)(scope, receive, send_with_id)
        except Exception as error:
            expected = isinstance(error, errors.ApiError) and not begun
            if not expected:
                logger.error("a request failed", exc_info=error)
            if begun:  # the broken body tells the client
                raise
            await _refused(errors.as_api_error(error), scope)(scope, receive, send_with_id)
