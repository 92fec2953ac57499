"""The public surface put together: one ASGI app that the entry service mounts at /."""

from __future__ import annotations

import uuid

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import errors, listing, speech
from api.backend import Backend
from api.references import ReferenceVoices

MAX_REQUEST_ID = 128


def create_app(backend: Backend) -> FastAPI:
    """The API over `backend`."""
    # BentoML serves the merged OpenAPI document and its page; a second pair would shadow them.
    app = FastAPI(title="CosyServe", docs_url=None, redoc_url=None, openapi_url=None)
    errors.install(app)
    app.include_router(speech.router(backend, ReferenceVoices(backend)))
    app.include_router(listing.router(backend))

    @app.api_route("/v1/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def unknown(path: str) -> None:
        raise errors.ApiError(404, "not_found", f"There is no /v1/{path} here, or not with this method.")

    app.add_middleware(RequestId)
    return app


class RequestId:
    """Gives every response the client's `X-Request-Id`, or one of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        usable = 0 < len(given) <= MAX_REQUEST_ID and given.isascii() and given.isprintable()
        request_id = given if usable else uuid.uuid4().hex

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
