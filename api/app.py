"""The public surface put together: one ASGI app that the entry service mounts at /."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.types import Scope

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
from api.departure import TakenInTime
from api.entrance import Entrance
from api.oip import errors as oip_errors
from api.oip import routes as oip
from api.oip.inference import Inference
from api.own_pages import OwnPages
from api.received import Received
from api.references import ReferenceVoices
from api.synthesis import Speaker
from api.telemetry import ended
from runners.voice_store import VoiceStore


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
    app.add_middleware(TakenInTime)
    app.add_middleware(WholeBodies, draining=app.state.draining)
    if keys is None:
        app.add_middleware(OwnPages, respond=_refused, local=local)
    else:
        app.add_middleware(ApiKeys, keys=keys, respond=_refused)
    app.add_middleware(Received)
    app.add_middleware(Entrance, respond=_refused)
    return app


def _refused(problem: errors.ApiError, scope: Scope) -> JSONResponse:
    """The response to `problem`, in the shape of the protocol that the request speaks."""
    ended(problem.code)
    return oip_errors.error_response(problem) if oip_errors.is_inference(scope) else problem.response()
