"""API keys: how one is made, and the list of those that are let in.

A key is 256 random bits, so that its plain SHA-256 tells nobody the key: there is no dictionary to try against it. A
slow hash, as for passwords, would make every request slow, and let wrong keys keep the server busy.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from api.limits import KeyLimits, parse_limits
from api.scopes import ALL, parse_scopes
from api.watched_file import WatchedFile

logger = logging.getLogger("cosyserve.api")

KEYS, KEYS_FILE = "COSYSERVE_API_KEYS", "COSYSERVE_API_KEYS_FILE"
PREFIX = "cosy_"
_SCOPES = "scopes="
_NAME, _DIGEST = re.compile(r"[A-Za-z0-9._@-]{1,64}"), re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class ApiKey:
    """`digest`: SHA-256 of the key."""

    name: str
    digest: bytes
    limits: KeyLimits
    scopes: frozenset[str] = ALL


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def entry(name: str, key: str) -> str:
    """The line for a key, without the key. Raises ValueError for a name that cannot be one."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits and . _ @ -")
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def parse_keys(text: str, source: str, default: KeyLimits) -> list[ApiKey]:
    """Keys from lines `NAME sha256:HEX [scopes=a,b] [limit=number ...]`; `#` begins a comment, `;` is a new line.

    Raises ValueError with a sentence that names `source` and the line.
    """
    keys: list[ApiKey] = []
    names: set[str] = set()
    for number, line in enumerate(text.replace(";", "\n").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, digest, rest = words[0], _DIGEST.fullmatch(words[1] if len(words) > 1 else ""), words[2:]
        if not _NAME.fullmatch(name) or digest is None:
            raise ValueError(
                f"{source}, line {number}: not NAME sha256:HEX, as `python -m launch.keys new NAME` prints."
            )
        if name in names:
            raise ValueError(f"{source}, line {number}: a second key has the name {name}.")
        names.add(name)
        try:
            limits = parse_limits([word for word in rest if not word.startswith(_SCOPES)], default)
            keys.append(ApiKey(name, bytes.fromhex(digest[1]), limits, _scopes(rest)))
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}.") from error
    return keys


def _scopes(words: list[str]) -> frozenset[str]:
    given = [word.removeprefix(_SCOPES) for word in words if word.startswith(_SCOPES)]
    if len(given) > 1:
        raise ValueError("scopes= comes twice")
    return parse_scopes(given[0].split(",")) if given else ALL


class KeyList:
    """The keys of the environment and of a file, which is read again when it has changed."""

    def __init__(self, given: str, path: Path | None, default: KeyLimits) -> None:
        """Raises ValueError with a sentence, also for a file that cannot be read."""
        self._given = self._keys = parse_keys(given, KEYS, default)
        self._file = None if path is None else WatchedFile(path, KEYS_FILE)
        self._default = default
        self._read()

    def find(self, presented: str) -> ApiKey | None:
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
        if self._file is None or (text := self._file.changed()) is None:
            return
        in_file = parse_keys(text, str(self._file.path), self._default)
        for name in {key.name for key in in_file} & {key.name for key in self._given}:
            raise ValueError(f"{self._file.path}: {KEYS} has a key of the name {name} too.")
        self._keys = [*self._given, *in_file]
