"""The OpenAPI document: what FastAPI finds, and what it does not know: errors, keys, WebSockets, BentoML's probes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from inspect import cleandoc
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIWebSocketRoute
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from api.answer_models import Error, SpeechEvent, SpeechFile
from api.oip.errors import is_inference
from audio.encode import FORMATS, coded_as

_ABOUT = """CosyVoice text-to-speech behind OpenAI's speech API and the Open Inference Protocol.

Errors are `{"error": {"message", "type", "param", "code"}}`; `code` is stable. The routes of the Open Inference
Protocol answer `{"error": "<code>: <sentence>"}`, as its clients expect. Every response has `X-Request-Id`, the
client's own if it sent one. Where the server asks for API keys, requests and WebSockets bring
`Authorization: Bearer KEY`, and `x-ratelimit-*` headers tell what the key's limits leave.
"""
_MODELS = (Error, SpeechFile, SpeechEvent)
"""Those that no route of FastAPI's names."""
_REFERENCE = "#/components/schemas/{model}"
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
    "default": ("Any other refusal, 4xx or 5xx; `code` says which.", {}),
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_AUDIO = dict.fromkeys((coded_as(name, 24_000).content_type for name in FORMATS), _BINARY)
_EVENTS = {"text/event-stream": {"schema": {"$ref": _REFERENCE.format(model="SpeechEvent")}}}
_FILE = {"application/json": {"schema": {"$ref": _REFERENCE.format(model="SpeechFile")}}}
# What is answered with audio, or with what has audio inside.
_SPOKEN = {
    "/v1/audio/speech": {**_AUDIO, **_EVENTS, **_FILE},
    "/v1/audio/voice-conversion": {**_AUDIO, **_EVENTS},
    **{f"/inference_{mode}": _AUDIO for mode in ("sft", "zero_shot", "cross_lingual", "instruct2")},
}
_PREVIEW = "/v1/audio/voices/{voice_id}/preview"
# What else is answered beside JSON.
_ANSWERS = {
    "/v2/models/{name}/infer": ["application/octet-stream"],
    "/v2/models/{name}/versions/{version}/infer": ["application/octet-stream"],
    "/v2/models/{name}/generate_stream": ["text/event-stream"],
}


def _header(kind: str, about: str) -> dict[str, Any]:
    return {"schema": {"type": kind}, "description": about}


_REQUEST_ID = {"X-Request-Id": _header("string", "The client's own, or made up here.")}
_SEED = {"X-Seed": _header("integer", "With this `seed` the same request sounds the same.")}
_LOCATION = {"Location": _header("string", "The path of what was made.")}
_SPEECH_HEADERS = {
    **_SEED,
    "X-Model-Id": _header("string", "The model's name, percent-encoded."),
    "X-Model-Revision": _header("string", "The model's revision, where it is known."),
    "X-Sample-Rate": _header("integer", "Hz, of the audio as it is coded."),
    "X-Usage-Input-Characters": _header("integer", "Of the text."),
    "X-TTFA-Ms": _header("integer", "Milliseconds to the first audio."),
    "X-Finish-Reason": _header("string", "Of a whole file: `stop`, or `length` where a limit of tokens cut it."),
    "X-Audio-Duration-Ms": _header("integer", "Of a whole file: its length in milliseconds."),
    "X-Usage-Output-Tokens": _header("integer", "Of a whole file: its speech tokens."),
    "Server-Timing": _header("string", "Of a whole file: the milliseconds of each stage."),
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
    _, shared = models_json_schema([(kind, "serialization") for kind in _MODELS], ref_template=_REFERENCE)
    schemas |= {**shared["$defs"], "ProtocolError": _PROTOCOL_ERROR}
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
    if path in _SPOKEN:
        answers["200"] |= {"content": _SPOKEN[path], "headers": _SPEECH_HEADERS}
    if path == _PREVIEW:
        answers["200"] |= {"content": {"audio/wav": _BINARY}, "headers": _SEED}
    for media_type in _ANSWERS.get(path, ()):
        answers["200"].setdefault("content", {}).setdefault(media_type, {})
    if "201" in answers:
        answers["201"]["headers"] = _LOCATION
    schema = "ProtocolError" if is_inference({"path": path}) else "Error"
    for status, (when, headers) in _REFUSALS.items():
        content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=schema)}}}
        answers.setdefault(status, {"description": when, "headers": headers, "content": content})
    for answer in answers.values():
        answer["headers"] = {**_REQUEST_ID, **answer.get("headers", {})}


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
