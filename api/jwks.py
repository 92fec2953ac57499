"""The public keys of a token issuer (RFC 7517), from a file or an address, kept and renewed while the server runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import aiohttp
import jwt

from api.errors import ApiError
from api.jwt_settings import JWKS
from api.watched_file import WatchedFile

logger = logging.getLogger("cosyserve.api")

ALGORITHMS = frozenset(("RS256", "ES256", "EdDSA"))
"""Signatures of a private key alone: none, and those that whoever can check them can make, are not among them."""
MAX_AGE, MIN_GAP = 300.0, 10.0  # seconds: keys are asked for again after; between two askings
_TIMEOUT, _MAX_BYTES = 5.0, 2**20
# What comes out of JSON that nobody has checked.
_NO_SET = (ValueError, TypeError, AttributeError, RecursionError, jwt.PyJWTError)
Keys = list[jwt.PyJWK]


class KeySource(Protocol):
    async def find(self, kid: str | None) -> jwt.PyJWK:
        """The key of this id; None: the only one. Raises ApiError invalid_token, issuer_unavailable."""


def parse_jwks(text: str) -> Keys:
    """The keys that may sign a token. Raises one of `_NO_SET` where there are none."""
    found = [
        key
        for key in jwt.PyJWKSet.from_json(text).keys
        if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")
    ]
    if not found:
        raise ValueError("no key is for RS256, ES256 or EdDSA")
    return found


def _pick(keys: Keys, kid: str | None) -> jwt.PyJWK | None:
    if kid is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == kid), None)


def _unknown() -> ApiError:
    return ApiError(401, "invalid_token", "The token is not signed by a key of the issuer.")


class FileKeys:
    """Read again when the file has changed; one that went bad leaves the keys as they were."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError with a sentence."""
        self._file = WatchedFile(path, JWKS)
        self._keys: Keys = []
        self._read()

    async def find(self, kid: str | None) -> jwt.PyJWK:
        try:
            self._read()
        except ValueError as error:
            logger.error("the token issuer's keys stay as they were: %s", error)
        if (found := _pick(self._keys, kid)) is None:
            raise _unknown()
        return found

    def _read(self) -> None:
        if (text := self._file.changed()) is None:
            return
        try:
            self._keys = parse_jwks(text)
        except _NO_SET as error:
            raise ValueError(f"{JWKS}={self._file.path} is no JSON Web Key Set with a usable key.") from error


class FetchedKeys:
    """Kept when the issuer does not answer. Asked for anew when they are old, beside the requests, and when a token
    names one that is not known, but never more often than every `MIN_GAP` seconds: anybody can invent a name."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._clock = url, clock
        self._keys: Keys = []
        self._asked_at = self._had_at = float("-inf")
        self._failed = False
        self._asking: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> jwt.PyJWK:
        found = _pick(self._keys, kid)
        if found is None:
            if (asking := self._ask()) is not None:
                await asyncio.shield(asking)
            found = _pick(self._keys, kid)
        elif self._clock() - self._had_at > MAX_AGE:
            self._ask()
        if found is not None:
            return found
        if self._failed:
            message = "The keys of the token's issuer cannot be had right now. Try again shortly."
            raise ApiError(503, "issuer_unavailable", message)
        raise _unknown()

    def _ask(self) -> asyncio.Task[None] | None:
        """The request that is on its way, perhaps just begun; None where it is too early for another one."""
        if self._asking is not None and not self._asking.done():
            return self._asking
        if self._clock() - self._asked_at < MIN_GAP:
            return None
        self._asked_at = self._clock()
        self._asking = asyncio.create_task(self._fetch())
        return self._asking

    async def _fetch(self) -> None:
        try:
            self._keys = parse_jwks(await _get(self._url))
            self._had_at, self._failed = self._clock(), False
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError, *_NO_SET) as error:
            if not self._failed:  # one line for an outage, however long
                logger.error("the token issuer's keys stay as they were: %s", type(error).__name__)
            self._failed = True


async def _get(url: str) -> str:
    """The body at `url`, of at most a mebibyte."""
    data = bytearray()
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        async for chunk in answer.content.iter_chunked(2**16):
            data += chunk
            if len(data) > _MAX_BYTES:
                raise ValueError("too large")
    return data.decode()
