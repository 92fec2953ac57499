"""The OpenAPI document: what FastAPI finds, and what it does not know: errors, keys, WebSockets, BentoML's probes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from inspect import cleandoc
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIWebSocketRoute
from starlette.routing import BaseRoute

from api.oip.errors import is_inference
from audio.encode import FORMATS, coded_as

_ABOUT = """CosyVoice text-to-speech behind OpenAI's speech API and the Open Inference Protocol.

Errors are `{"error": {"message", "type", "param", "code"}}`; `code` is stable. The routes of the Open Inference
Protocol answer `{"error": "<code>: <sentence>"}`, as its clients expect. Every response has `X-Request-Id`, the
client's own if it sent one. Where the server asks for API keys, requests and WebSockets bring
`Authorization: Bearer KEY`, and `x-ratelimit-*` headers tell what the key's limits leave.
"""
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "One sentence for a person."},
                "type": {"enum": ["invalid_request_error", "rate_limit_error", "server_error"]},
                "param": {"type": ["string", "null"], "description": "The field at fault."},
                "code": {"type": "string", "description": "Stable: for programs."},
            },
        }
    },
}
_PROTOCOL_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "<code>: <sentence>"}},
}
_RETRY = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
# Status: when, and the headers that come with it.
_REFUSALS: dict[str, tuple[str, dict[str, Any]]] = {
    "401": ("The server asks for an API key: `missing_api_key`, `invalid_api_key`.", {}),
    "429": ("Too much at once, or over the key's limits: `overloaded`, `rate_limited`.", _RETRY),
    "503": ("Not now: `loading`, `not_ready`, `draining`, `engine_unavailable`.", _RETRY),
    "default": ("Any other refusal; `code` says which.", {}),
}
_AUDIO = dict.fromkeys(coded_as(name, 24_000).content_type for name in FORMATS)
# What routes answer that write their response themselves, beside JSON.
_ANSWERS = {
    "/v1/audio/speech": [*_AUDIO, "text/event-stream"],
    "/v1/audio/voice-conversion": [*_AUDIO, "text/event-stream"],
    "/v1/audio/voices/{voice_id}/preview": ["audio/wav"],
    "/v2/models/{name}/infer": ["application/octet-stream"],
    "/v2/models/{name}/versions/{version}/infer": ["application/octet-stream"],
    "/v2/models/{name}/generate_stream": ["text/event-stream"],
    **{f"/inference_{mode}": [*_AUDIO] for mode in ("sft", "zero_shot", "cross_lingual", "instruct2")},
}
_PROBES = {
    "/livez": ("The process answers.", False),
    "/healthz": ("The same as `/livez`.", False),
    "/readyz": ("200 once the model has spoken its warm-up, 503 before, and from SIGTERM on.", True),
}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of `app`, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=_version(), description=_ABOUT + _sockets(app), routes=app.routes)
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    schemas |= {"Error": _ERROR, "ProtocolError": _PROTOCOL_ERROR}
    parts["securitySchemes"] = {"ApiKey": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{}, {"ApiKey": []}]
    for path, methods in made["paths"].items():
        for operation in methods.values():
            _describe_answers(path, operation)
    made["paths"] |= {path: _probe(*about) for path, about in _PROBES.items()}
    made["paths"]["/metrics"] = {"get": _plain("What the service counted, in Prometheus's text format.")}
    return made


def _describe_answers(path: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422")):
        del answers["422"]  # FastAPI's own shape, which nothing here has
    for media_type in _ANSWERS.get(path, ()):
        answers["200"].setdefault("content", {}).setdefault(media_type, {})
    schema = "ProtocolError" if is_inference({"path": path}) else "Error"
    for status, (when, headers) in _REFUSALS.items():
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
        answers.setdefault(status, {"description": when, "headers": headers, "content": content})


def _probe(about: str, may_refuse: bool) -> dict[str, Any]:
    operation = _plain(about)
    if may_refuse:
        operation["responses"]["503"] = {"description": "Not ready.", "content": {"text/plain": {}}}
    return {"get": operation}


def _plain(about: str) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {"summary": about, "responses": {"200": {"description": about, "content": content}}, "security": []}


def _sockets(app: FastAPI) -> str:
    """What OpenAPI has no words for: each WebSocket in prose."""
    described: dict[object, str] = {}
    for route in websockets(app):  # one endpoint may have several paths
        about = cleandoc(route.endpoint.__doc__ or "")
        described.setdefault(route.endpoint, f"\n### WebSocket `{route.path}`\n\n{about}\n")
    return "".join(described.values())


def websockets(app: FastAPI) -> Iterator[APIWebSocketRoute]:
    def below(routes: list[BaseRoute]) -> Iterator[APIWebSocketRoute]:
        for route in routes:
            if isinstance(route, APIWebSocketRoute):
                yield route
            elif (included := getattr(route, "original_router", None)) is not None:
                yield from below(included.routes)

    return below(app.routes)


def _version() -> str:
    try:
        return version("cosyserve")
    except PackageNotFoundError:
        return "0"
