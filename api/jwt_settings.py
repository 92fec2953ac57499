"""Whose tokens are let in beside API keys: the COSYSERVE_JWT_* settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

JWKS, ISSUER, AUDIENCE = "COSYSERVE_JWT_JWKS", "COSYSERVE_JWT_ISSUER", "COSYSERVE_JWT_AUDIENCE"


@dataclass(frozen=True)
class JwtSettings:
    """`jwks`: the file of the issuer's public keys, or its address. A token is for one of `audiences`."""

    jwks: Path | str
    issuer: str
    audiences: tuple[str, ...]


def jwt_settings(environment: Mapping[str, str]) -> JwtSettings | None:
    """None where none is set. Raises ValueError with a sentence."""
    jwks, issuer, audience = (environment.get(name, "").strip() for name in (JWKS, ISSUER, AUDIENCE))
    if not (jwks or issuer or audience):
        return None
    audiences = tuple(word.strip() for word in audience.split(",") if word.strip())
    if not (jwks and issuer and audiences):
        raise ValueError(f"Tokens need all of {JWKS}, {ISSUER} and {AUDIENCE}.")
    return JwtSettings(_address(jwks) if "://" in jwks else Path(jwks), issuer, audiences)


def _address(jwks: str) -> str:
    """Plain http only where nobody is on the way: whoever can change the answer can sign tokens."""
    try:
        url = urlsplit(jwks)
        host = url.hostname or ""
        usable = bool(host) and url.username is None and url.port != 0
    except ValueError:
        usable = False
    if not usable or not (url.scheme == "https" or (url.scheme == "http" and _is_loopback(host))):
        raise ValueError(f"{JWKS} must be a file, or an https address without a user name; http on loopback only.")
    return jwks


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
