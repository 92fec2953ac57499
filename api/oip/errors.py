"""Every refusal on the protocol's routes: one string that begins with the stable code, as its clients print it."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.types import Scope

from api.errors import ApiError, as_api_error
from api.telemetry import ended

logger = logging.getLogger("cosyserve.api")
_PATH = re.compile(r"/v2(/.*)?|/v1/models/.*:(predict|explain)", re.DOTALL)


def is_inference(scope: Scope) -> bool:
    """Whether the request speaks the protocol: all of /v2, and v1's verbs after a model's name."""
    return _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", ""))) is not None


def known(error: Exception) -> ApiError:
    """The error as the client sees it; what nobody expected goes into the log."""
    problem = as_api_error(error)
    if problem.code == "internal_error":
        logger.error("a request failed", exc_info=error)
    return problem


def sentence(problem: ApiError) -> str:
    return f"{problem.code}: {problem.message}"


async def answered(work: Awaitable[Response]) -> Response:
    """The response of `work`, or the response that its exception is."""
    try:
        return await work
    except Exception as error:
        problem = known(error)
        ended(problem.code)
        return error_response(problem)


def error_response(problem: ApiError) -> JSONResponse:
    return JSONResponse({"error": sentence(problem)}, problem.status, problem.headers())
