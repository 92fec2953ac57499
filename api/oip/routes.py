"""Every REST route of the protocol, put together."""

from __future__ import annotations

from fastapi import FastAPI

from api.oip import generate, predict, rest
from api.oip.inference import Inference


def install(app: FastAPI, inference: Inference) -> None:
    """Add the routes to `app`, which must not have taken the rest of /v1 yet."""
    for router in (rest.router(inference), generate.router(inference), predict.router(inference), rest.fallback()):
        app.include_router(router)
    app.router.routes.append(predict.Liveness())
