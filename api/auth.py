"""Who is let in, and for what: by an API key or by a token, over HTTP and WebSocket; gRPC asks the same `KeyRing`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError
from api.jwt_settings import JWKS, jwt_settings
from api.keyring import KEYS, KEYS_FILE, KeyList
from api.limits import KeyLimits, Meter, Meters, parse_limits
from api.revocation import run_session
from api.scopes import check_scope, of_route

if TYPE_CHECKING:
    from api.jwt_tokens import Tokens

KEY_LIMITS = "COSYSERVE_KEY_LIMITS"
# Probes and scrapers bring no key, and a browser brings none with the address of a page. Nothing here tells or takes
# more than the documentation does; /metrics has counts only.
_PROBES = ("/livez", "/readyz", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready")
_PAGES = ("/", "/ui", "/docs", "/openapi.json", "/docs.json")
OPEN_PATHS = frozenset(_PROBES + _PAGES)
OPEN_FOLDERS = ("/ui/", "/docs/", "/static_content/")


@dataclass(frozen=True)
class Caller:
    """`name`: the key's, or `token:` and the token's subject, which no key's name is: a key's has no colon."""

    name: str
    scopes: frozenset[str]
    meter: Meter


class KeyRing:
    """The keys and the issuer of tokens whose holders are let in, and what each of them has used."""

    def __init__(self, given: str, path: Path | None, default: KeyLimits, tokens: Tokens | None = None) -> None:
        """`default`: the limits of keys that name none, and of tokens. Raises ValueError with a sentence."""
        self._keys, self._default, self._tokens = KeyList(given, path, default), default, tokens
        self._meters = Meters()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KeyRing | None:
        """None where nothing is set: no keys are asked for. Raises ValueError with a sentence."""
        given, path = environment.get(KEYS, ""), environment.get(KEYS_FILE)
        tokens = _tokens(environment)
        if not given.strip() and not path and tokens is None:
            return None
        try:
            default = parse_limits(environment.get(KEY_LIMITS, "").split(), KeyLimits())
        except ValueError as error:
            raise ValueError(f"{KEY_LIMITS}: {error}.") from error
        return cls(given, Path(path) if path else None, default, tokens)

    async def caller(self, authorization: str | None) -> Caller:
        """Who sent this Authorization header.

        Raises ApiError missing_api_key, invalid_api_key, invalid_token, issuer_unavailable.
        """
        scheme, _, presented = (authorization or "").strip().partition(" ")
        presented = presented.strip()
        if scheme.lower() != "bearer" or not presented:
            raise ApiError(401, "missing_api_key", "This server needs an API key: send `Authorization: Bearer KEY`.")
        if (key := self._keys.find(presented)) is not None:
            return Caller(key.name, key.scopes, self._meters.of(key.name, key.limits))
        if self._tokens is None or presented.count(".") != 2:
            raise ApiError(401, "invalid_api_key", "The API key is not known here.")
        token = await self._tokens.read(presented)
        name = f"token:{token.subject}"
        return Caller(name, token.scopes, self._meters.of(name, self._default))


def _tokens(environment: Mapping[str, str]) -> Tokens | None:
    if (settings := jwt_settings(environment)) is None:
        return None
    try:
        from api.jwt_tokens import Tokens  # what checks signatures is not loaded where it is not used

        return Tokens(settings)
    except ImportError as error:
        raise ValueError(f'{JWKS} needs `pip install "pyjwt[crypto]"`.') from error


class ApiKeys:
    """ASGI middleware: only who has a key or a token comes in, for what its scopes are for, within its limits."""

    def __init__(self, app: ASGIApp, keys: KeyRing, respond: Callable[[ApiError, Scope], JSONResponse]) -> None:
        self._app, self._keys, self._respond = app, keys, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or is_open(scope):
            await self._app(scope, receive, send)
            return
        authorization = Headers(scope=scope).get("authorization")
        needed = of_route(scope.get("method", "WEBSOCKET"), scope["path"])
        meter: Meter | None = None

        async def let_in() -> Caller:
            caller = await self._keys.caller(authorization)
            check_scope(caller.scopes, needed)
            return caller

        with ExitStack() as running:
            try:
                caller = await let_in()
                scope.setdefault("state", {})["caller"] = caller.name  # for the log
                meter = caller.meter
                running.enter_context(meter.request())
            except ApiError as problem:
                await self._refuse(problem, meter, scope, receive, send)
                return
            if scope["type"] == "websocket":
                await run_session(lambda receive, send: self._app(scope, receive, send), receive, send, let_in)
            else:
                await self._app(scope, receive, _with_headers(send, meter))

    async def _refuse(self, problem: ApiError, meter: Meter | None, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._respond(problem, scope)
        response.headers.update({**problem.headers(), **(meter.headers() if meter else {})})
        await send_refusal(response, problem, scope, receive, send)


async def send_refusal(response: JSONResponse, problem: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """`response` to a request; to a WebSocket too, where the server can send one in place of the handshake."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.code})
    else:
        await response(scope, receive, send)


def is_open(scope: Scope) -> bool:
    """Whether it is asked for without a key, by whomever. A body is never taken so."""
    path = scope["path"]
    reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return reads and (path in OPEN_PATHS or path.startswith(OPEN_FOLDERS))


def _with_headers(send: Send, meter: Meter) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(meter.headers())
        await send(message)

    return send_with_headers
