"""Every refusal of the public surface: one shape, stable codes, one place that turns exceptions into responses."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from audio.errors import AudioError
from runners.request import RequestError
from text.errors import TextError

RETRY_AFTER_SECONDS = "1"
MAX_MESSAGE, MAX_PARAM = 600, 100  # characters: what a client sent is not sent back at length


class ApiError(Exception):
    """A request that is refused. `param` names the field at fault, `code` is stable, `status` is 4xx or 5xx.

    `retry_after`: seconds until a 429 or 503 is worth another try.
    """

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, *, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.message = message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
        self.param = param and param[:MAX_PARAM]
        self._retry_after = retry_after

    def body(self) -> dict:
        """The OpenAI error object."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """What belongs beside the body, whatever the protocol's shape of it."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        if self.status in (429, 503):
            return {"Retry-After": RETRY_AFTER_SECONDS if self._retry_after is None else str(self._retry_after)}
        return {}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers())


def as_api_error(error: Exception) -> ApiError:
    """What any exception of the layers below is to the client. Unknown ones tell nothing of their inside."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        return ApiError(error.status, error.code, error.message, retry_after=error.retry_after)
    if isinstance(error, TextError):
        return ApiError(400, error.code, error.message, "input")
    if isinstance(error, AudioError):
        if error.code == "nonfinite_audio":
            return ApiError(500, error.code, error.message)
        return ApiError(400, error.code, error.message, "ref_audio")
    return ApiError(500, "internal_error", "Something went wrong inside the server.")


def install(app: FastAPI, respond: Callable[[ApiError, Scope], JSONResponse]) -> None:
    """Make every error of `app` what `respond` gives for it and the request's scope."""

    async def known(request: Request, error: Exception) -> JSONResponse:
        return respond(as_api_error(error), request.scope)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        codes = {404: "not_found", 405: "method_not_allowed"}
        problem = ApiError(error.status_code, codes.get(error.status_code, "http_error"), str(error.detail))
        return respond(problem, request.scope)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return respond(_of_validation(error), request.scope)

    for kind in (ApiError, RequestError, TextError, AudioError):
        app.add_exception_handler(kind, known)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def _of_validation(error: RequestValidationError) -> ApiError:
    """The first thing that FastAPI found wrong with a declared parameter."""
    problem = error.errors()[0]
    # The location begins with where the parameter was looked for: query, path, header, body.
    field = ".".join(map(str, problem["loc"][1:])) or str(problem["loc"][0])
    if problem["type"] == "missing":
        return ApiError(400, "missing_parameter", f"`{field}` is required.", field)
    if problem["type"].endswith(("_type", "_parsing")):
        return ApiError(422, "invalid_type", f"`{field}`: {problem['msg']}.", field)
    return ApiError(400, "invalid_value", f"`{field}`: {problem['msg']}.", field)
