"""JSON Web Tokens (RFC 7519) as access tokens: who they speak for, and with which scopes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from jwt.algorithms import has_crypto

from api.errors import ApiError
from api.jwks import FetchedKeys, FileKeys, KeySource
from api.jwt_settings import JwtSettings
from api.scopes import ALL

LEEWAY = 30.0  # seconds that clocks may differ
MAX_TOKEN, MAX_SUBJECT = 16_384, 255  # characters
_OPTIONS: Any = {"require": ["exp", "iss", "aud", "sub"]}
# What else comes out of JSON that nobody has checked.
_BAD_TOKEN = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
_WHY: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.InvalidIssuerError, "is of another issuer"),
    (jwt.MissingRequiredClaimError, "lacks one of exp, iss, aud and sub"),
)


@dataclass(frozen=True)
class Token:
    subject: str
    scopes: frozenset[str]


class Tokens:
    """Those of one issuer."""

    def __init__(self, settings: JwtSettings) -> None:
        """Raises ValueError with a sentence, ImportError where what checks signatures is not installed."""
        if not has_crypto:
            raise ImportError("cryptography")
        jwks = settings.jwks
        self._keys: KeySource = FileKeys(jwks) if isinstance(jwks, Path) else FetchedKeys(jwks)
        self._issuer, self._audiences = settings.issuer, settings.audiences

    async def read(self, presented: str) -> Token:
        """Raises ApiError invalid_token, issuer_unavailable."""
        if len(presented) > MAX_TOKEN:
            raise _invalid(f"has over {MAX_TOKEN:,} characters")
        try:
            kid = jwt.get_unverified_header(presented).get("kid")
            key = await self._keys.find(kid)
            claims = jwt.decode(
                presented,
                key,
                algorithms=[key.algorithm_name],  # the key's, whatever the token says of itself
                audience=self._audiences,
                issuer=self._issuer,
                leeway=LEEWAY,
                options=_OPTIONS,
            )
        except _BAD_TOKEN as error:
            raise _invalid(next((why for kind, why in _WHY if isinstance(error, kind)), "cannot be read")) from error
        return Token(_subject(claims["sub"]), _scopes(claims))


def _subject(sub: str) -> str:
    """What limits and logs know the caller by."""
    if not 0 < len(sub) <= MAX_SUBJECT or not sub.isprintable():
        raise _invalid(f"has no subject of 1 to {MAX_SUBJECT} printable characters")
    return sub


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """Of `scope` (RFC 8693: words with spaces between them) and `scp` (the same, or a list); others are not ours."""
    words: set[str] = set()
    for given in (claims.get("scope"), claims.get("scp")):
        listed = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        words |= {word for word in listed if isinstance(word, str)}
    return ALL & words


def _invalid(why: str) -> ApiError:
    return ApiError(401, "invalid_token", f"The token {why}.")
