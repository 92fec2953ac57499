"""API keys: which are accepted, and which requests need one.

A key is 256 random bits, so that its plain SHA-256 tells nobody the key: there is no dictionary to try against it. A
slow hash, as for passwords, would make every request slow, and let wrong keys keep the server busy.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import ApiError
from api.limits import KeyLimits, Meter, parse_limits

logger = logging.getLogger("cosyserve.api")

KEYS, KEYS_FILE = "COSYSERVE_API_KEYS", "COSYSERVE_API_KEYS_FILE"
KEY_LIMITS = "COSYSERVE_KEY_LIMITS"
PREFIX = "cosy_"
_NAME, _DIGEST = re.compile(r"[A-Za-z0-9._@-]{1,64}"), re.compile(r"sha256:([0-9a-f]{64})")
# Probes and scrapers bring no key, and a browser brings none with the address of a page. Nothing here tells or takes
# more than the documentation does; /metrics has counts only.
_PROBES = ("/livez", "/readyz", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready")
_PAGES = ("/", "/ui", "/docs", "/openapi.json", "/docs.json")
OPEN_PATHS = frozenset(_PROBES + _PAGES)
OPEN_FOLDERS = ("/ui/", "/docs/", "/static_content/")


@dataclass(frozen=True)
class ApiKey:
    """`digest`: SHA-256 of the key."""

    name: str
    digest: bytes
    limits: KeyLimits


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def entry(name: str, key: str) -> str:
    """The line for a key, without the key. Raises ValueError for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits and . _ @ -")
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def parse_keys(text: str, source: str, default: KeyLimits) -> list[ApiKey]:
    """Keys from lines `NAME sha256:HEX [limit=number ...]`; `#` begins a comment, `;` stands for a new line.

    Raises ValueError with a sentence that names `source` and the line.
    """
    keys: list[ApiKey] = []
    for number, line in enumerate(text.replace(";", "\n").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, digest, limits = words[0], _DIGEST.fullmatch(words[1] if len(words) > 1 else ""), words[2:]
        if not _NAME.fullmatch(name) or digest is None:
            raise ValueError(
                f"{source}, line {number}: not NAME sha256:HEX, as `python -m launch.keys new NAME` prints."
            )
        if name in (key.name for key in keys):
            raise ValueError(f"{source}, line {number}: a second key has the name {name}.")
        try:
            keys.append(ApiKey(name, bytes.fromhex(digest[1]), parse_limits(limits, default)))
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}.") from error
    return keys


class KeyRing:
    """The keys of the environment and of a file, which is read again when it has changed; and what each has used."""

    def __init__(self, given: str, path: Path | None, default: KeyLimits) -> None:
        """Raises ValueError with a sentence, also for a file that cannot be read."""
        self._given = parse_keys(given, KEYS, default)
        self._path, self._default = path, default
        self._read_at: tuple[int, ...] | None = ()
        self._keys: list[ApiKey] = []
        self._meters: dict[str, Meter] = {}
        self._read()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> KeyRing | None:
        """None where neither variable is set: no keys are asked for. Raises ValueError with a sentence."""
        given, path = environment.get(KEYS, ""), environment.get(KEYS_FILE)
        if not given.strip() and not path:
            return None
        try:
            default = parse_limits(environment.get(KEY_LIMITS, "").split(), KeyLimits())
        except ValueError as error:
            raise ValueError(f"{KEY_LIMITS}: {error}.") from error
        return cls(given, Path(path) if path else None, default)

    def meter(self, authorization: str | None) -> Meter:
        """The meter of the key in an Authorization header. Raises ApiError missing_api_key, invalid_api_key."""
        scheme, _, presented = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not presented.strip():
            raise ApiError(401, "missing_api_key", "This server needs an API key: send `Authorization: Bearer KEY`.")
        key = self._find(presented.strip())
        if key is None:
            raise ApiError(401, "invalid_api_key", "The API key is not known here.")
        meter = self._meters.setdefault(key.name, Meter(key.limits))
        if meter.limits != key.limits:
            meter.adopt(key.limits)
        return meter

    def _find(self, presented: str) -> ApiKey | None:
        """Compares with every key, each in constant time: how long it takes tells nothing."""
        self._read_again()
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def _read_again(self) -> None:
        """A file that went bad while the server runs leaves the keys as they were: it is not the clients' fault."""
        try:
            self._read()
        except ValueError as error:
            logger.error("the API keys stay as they were: %s", error)

    def _read(self) -> None:
        if self._path is None:
            self._keys = self._given
            return
        stamp = _stamp(self._path)
        if stamp == self._read_at:
            return
        self._read_at = stamp  # also of a file that turns out to be bad: one line in the log for each change
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{KEYS_FILE}={self._path} cannot be read.") from error
        in_file = parse_keys(text, str(self._path), self._default)
        for key in in_file:
            if key.name in (given.name for given in self._given):
                raise ValueError(f"{self._path}: {KEYS} has a key of the name {key.name} too.")
        self._keys = [*self._given, *in_file]


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Another one whenever the file has changed, or the link that leads to it; None: there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class ApiKeys:
    """ASGI middleware: only who has a key comes in, within its limits."""

    def __init__(self, app: ASGIApp, keys: KeyRing, respond: Callable[[ApiError, Scope], JSONResponse]) -> None:
        self._app, self._keys, self._respond = app, keys, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or is_open(scope):
            await self._app(scope, receive, send)
            return
        meter: Meter | None = None
        with ExitStack() as running:
            try:
                meter = self._keys.meter(Headers(scope=scope).get("authorization"))
                running.enter_context(meter.request())
            except ApiError as problem:
                await self._refuse(problem, meter, scope, receive, send)
                return
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
