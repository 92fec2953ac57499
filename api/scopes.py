"""What a caller may do: the scopes that there are, and which of them each route and each gRPC call asks for."""

from __future__ import annotations

import re
from collections.abc import Collection

from api.errors import ApiError

SPEECH, VOICES, ADMIN = "speech", "voices", "admin"
ALL = frozenset((SPEECH, VOICES, ADMIN))
"""Of a key that names none."""
_SPEECH, _VOICES, _EITHER, _ADMIN = map(frozenset, ((SPEECH,), (VOICES,), (SPEECH, VOICES), (ADMIN,)))
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_EVERY = None  # method

# The first that fits: methods, path, and scopes of which a caller needs one. What nothing fits needs `admin`, so that a
# route which is forgotten here is closed rather than open, and so is a route's path with a line break behind it, which
# Starlette takes for the route's. No rule may be so wide that it has another one's.
_RULES = tuple(
    (methods, re.compile(path, re.DOTALL), scopes)
    for methods, path, scopes in (
        (_READS, r"/v1/models(/.*)?|/v2|/v2/models(/.*)?", ALL),
        (_EVERY, r"/v1/audio/voices/[^/]+/preview", _SPEECH),
        (_READS, r"/v1/(audio/voices|pronunciation-dictionaries)(/.*)?", _EITHER),
        (_EVERY, r"/v1/(audio/voices|pronunciation-dictionaries)(/.*)?", _VOICES),
        (_EVERY, r"/v1/audio/(speech(/.*)?|voice-conversion)|/v1/text/.*|/inference_\w+|/api-ws/.*", _SPEECH),
        (_EVERY, r"/v1/models/.*:(predict|explain)|/v2/models/.*", _SPEECH),
    )
)
_DESCRIBING_CALLS = ("ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelConfig")
_CALLS = dict.fromkeys((*_DESCRIBING_CALLS, "ModelStatistics"), ALL) | {
    "ModelInfer": _SPEECH,
    "ModelStreamInfer": _SPEECH,
}


def of_route(method: str, path: str) -> frozenset[str]:
    """One of these is needed. `method` of a WebSocket: any name but those of HTTP."""
    for methods, pattern, scopes in _RULES:
        if (methods is _EVERY or method in methods) and pattern.fullmatch(path):
            return scopes
    return _ADMIN


def of_call(name: str) -> frozenset[str]:
    """The same for a gRPC call."""
    return _CALLS.get(name, _ADMIN)


def parse_scopes(words: Collection[str]) -> frozenset[str]:
    """Raises ValueError, a sentence, for a word that is no scope, and for no words."""
    if not words or not ALL.issuperset(words):
        raise ValueError("scopes are some of speech, voices and admin, with commas between them")
    return frozenset(words)


def check_scope(held: frozenset[str], needed: frozenset[str]) -> None:
    """Raises ApiError insufficient_scope."""
    if held.isdisjoint(needed):
        has = ", ".join(sorted(held)) or "none"
        message = f"This needs the scope {' or '.join(sorted(needed))}; the key or token has {has}."
        raise ApiError(403, "insufficient_scope", message)
