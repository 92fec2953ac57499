"""Tokens of the issuer come in; forged, stale and unreadable ones do not, and no outage locks anybody out."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from api.app import create_app
from api.auth import KEY_LIMITS, KeyRing
from api.errors import ApiError
from api.jwks import MAX_AGE, MIN_GAP, FetchedKeys
from api.jwt_settings import AUDIENCE, ISSUER, JWKS
from api.keyring import KEYS, entry, new_key
from api.limits import MAX_METERS, KeyLimits, Meters
from api.scopes import ADMIN, SPEECH, VOICES
from tests.api import token_issuer
from tests.api.live_server import comes_true
from tests.api.oip_backend import FakeBackend
from tests.api.token_issuer import PRIVATE, Issuer, issuer, jwk, jwks, token


@pytest.fixture
def running() -> Iterator[Issuer]:
    with issuer() as state:
        yield state


def ring(source: str, **more: str) -> KeyRing:
    settings = {JWKS: source, ISSUER: token_issuer.ISSUER, AUDIENCE: f"other, {token_issuer.AUDIENCE}"}
    keys = KeyRing.from_environment({**settings, **more})
    assert keys is not None
    return keys


async def refusal(keys: KeyRing, presented: str) -> tuple[int, str] | None:
    try:
        await keys.caller(f"Bearer {presented}")
    except ApiError as problem:
        assert presented not in problem.message
        return problem.status, problem.code
    return None


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(header: dict[str, Any], secret: bytes | None = None) -> str:
    """Good claims, and no signature or an HMAC."""
    signed = f"{part(header)}.{token().split('.')[1]}"
    return f"{signed}.{part(hmac.digest(secret, signed.encode(), hashlib.sha256)) if secret else ''}"


@pytest.mark.parametrize("algorithm", list(PRIVATE))
@pytest.mark.parametrize("named", [True, False])
async def test_a_token_comes_in_with_its_subject_and_scopes(algorithm: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(jwk(algorithm, "one")))
    keys = ring(str(path), **{KEY_LIMITS: "concurrent=3"})
    given = token(algorithm, "one" if named else None, scope="openid speech admin", scp=["voices", "mail", 7])
    caller = await keys.caller(f"Bearer {given}")
    assert (caller.name, caller.scopes) == ("token:alice", {SPEECH, VOICES, ADMIN})
    assert caller.meter.limits == KeyLimits(concurrent=3)
    assert (await keys.caller(f"Bearer {token(algorithm, scope=None)}")).scopes == frozenset()
    assert (await keys.caller(f"Bearer {token(algorithm, scope=None, scp='voices x')}")).scopes == {VOICES}
    assert (await keys.caller(f"Bearer {token(algorithm, aud=['x', 'tts'])}")).meter is caller.meter


NOW = int(time.time())
PUBLIC = PRIVATE["ES256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
CLAIMS = jwt.decode(token(), options={"verify_signature": False})
SYMMETRIC = {"kty": "oct", "kid": "shared", "k": part(b"s" * 32)}
TAMPERED = token().split(".")


@pytest.mark.parametrize(
    ("name", "presented"),
    [
        ("expired", token(exp=NOW - 60)),
        ("not yet", token(nbf=NOW + 600)),
        ("another audience", token(aud="mail")),
        ("another issuer", token(iss="https://issuer.example/realm/")),
        ("never expires", token(exp=None)),
        ("of nobody", token(sub=None)),
        ("for nobody", token(aud=None)),
        ("from nobody", token(iss=None)),
        ("a subject that writes lines into logs", token(sub="alice\nbob")),
        ("a long subject", token(sub="a" * 256)),
        ("a key that the set has not", token(kid="other")),
        ("a key of another kind", token("RS256")),
        ("a key for encryption", token("RS256", "encrypts")),
        ("no signature", forged({"alg": "none", "kid": "one"})),
        ("none at all", forged({"alg": "None"})),
        ("no algorithm", forged({"kid": "one"})),
        ("signed with the public key", forged({"alg": "HS256", "kid": "one"}, PUBLIC)),
        ("signed with a shared key", forged({"alg": "HS256", "kid": "shared"}, b"s" * 32)),
        (
            "unknown critical extension",
            jwt.encode({}, PRIVATE["ES256"], "ES256", headers={"kid": "one", "crit": ["x"]}),
        ),
        ("other claims", f"{TAMPERED[0]}.{part({'sub': 'admin', 'exp': NOW + 999})}.{TAMPERED[2]}"),
        ("a signature cut short", token()[:-4]),
        ("an id that is no text", forged({"alg": "ES256", "kid": ["one"]})),
        ("nested", f"{part(b'[' * 9000)}.{TAMPERED[1]}.{TAMPERED[2]}"),
        ("long", f"{TAMPERED[0]}.{'A' * 20_000}.{TAMPERED[2]}"),
        ("rubbish", "..."[:2] + "x"),
    ],
)
async def test_what_is_not_the_issuers_does_not_come_in(name: str, presented: str, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(jwk("ES256", "one"), SYMMETRIC, jwk("RS256", "encrypts", use="enc")))
    keys = ring(str(path))
    assert await refusal(keys, presented) == (401, "invalid_token"), name
    assert await refusal(keys, token()) is None


@pytest.mark.parametrize(("claims", "let_in"), [({"exp": -20}, True), ({"exp": -40}, False), ({"nbf": 20}, True)])
async def test_clocks_may_differ_by_half_a_minute(claims: dict[str, Any], let_in: bool, running: Issuer) -> None:
    given = token(**{name: int(time.time()) + seconds for name, seconds in claims.items()})
    assert (await refusal(ring(running.url), given) is None) == let_in


async def test_what_looks_like_no_token_is_a_wrong_key_and_keys_go_on(running: Issuer) -> None:
    key = new_key()
    keys = ring(running.url, **{KEYS: f"{entry('bob', key)} scopes=voices"})
    assert await refusal(keys, "sesame") == (401, "invalid_api_key")
    assert (await keys.caller(f"Bearer {key}")).scopes == {VOICES}
    assert running.asked == 0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def known(keys: FetchedKeys, kid: str) -> int:
    """200, or the status of the refusal."""
    try:
        return 200 if (await keys.find(kid)).key_id == kid else 500
    except ApiError as problem:
        return problem.status


async def asked_again(running: Issuer, count: int) -> None:
    await comes_true(lambda: running.asked >= count)
    await asyncio.sleep(0.05)  # and the answer read


async def test_new_keys_are_found_and_invented_ones_ask_the_issuer_seldom(running: Issuer) -> None:
    clock = Clock()
    keys = FetchedKeys(running.url, clock)
    assert await asyncio.gather(*(known(keys, "one") for _ in range(20))) == [200] * 20
    assert running.asked == 1
    running.body = jwks(jwk("ES256", "one"), jwk("RS256", "two"))
    assert await known(keys, "two") == 401
    clock.now += MIN_GAP
    assert [await known(keys, kid) for kid in ("two", "one")] == [200, 200]
    assert [await known(keys, f"invented {n}") for n in range(50)] == [401] * 50
    assert running.asked == 2
    running.body = jwks(jwk("RS256", "two"))
    clock.now += MAX_AGE + 1
    assert await known(keys, "one") == 200  # the issuer is asked beside the request
    await asked_again(running, 3)
    assert [await known(keys, kid) for kid in ("one", "two")] == [401, 200]


@pytest.mark.parametrize(
    "outage",
    [
        {"status": 500},
        {"status": 302, "headers": {"Location": "/elsewhere"}},
        {"body": "not JSON"},
        {"body": "[" * 100_000},
        {"body": "[]"},
        {"body": '{"keys": []}'},
        {"body": '{"keys": [{"kty": "RSA", "alg": ["RS256"]}]}'},
        {"body": jwks(SYMMETRIC)},
        {"body": "x" * (2**20 + 1)},
    ],
)
async def test_an_outage_of_the_issuer_locks_nobody_out(
    outage: dict[str, Any], running: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    first, late = FetchedKeys(running.url, clock), FetchedKeys(running.url, clock)
    assert await known(first, "one") == 200
    well = dict(vars(running))
    vars(running).update(outage)
    for _ in range(3):
        clock.now += MAX_AGE + 1
        count = running.asked + 1
        assert await known(first, "one") == 200
        await asked_again(running, count)
    assert [await known(first, "two"), await known(late, "one")] == [503, 503]
    assert len(caplog.records) == 2
    vars(running).update({name: well[name] for name in outage})
    clock.now += MIN_GAP
    assert [await known(first, "two"), await known(late, "one")] == [401, 200]


async def test_a_changed_file_changes_the_issuers_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(jwk("ES256", "one")))
    keys = ring(str(path))
    assert await refusal(keys, token()) is None
    (tmp_path / "next").write_text(jwks(jwk("EdDSA", "two")))
    os.replace(tmp_path / "next", path)
    assert [await refusal(keys, given) for given in (token(), token("EdDSA", "two"))] == [(401, "invalid_token"), None]
    for bad in ("{}", "[]", "null"):
        path.write_text(bad)
        assert await refusal(keys, token("EdDSA", "two")) is None
    path.unlink()
    assert await refusal(keys, token("EdDSA", "two")) is None
    assert len(caplog.records) == 4


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({JWKS: "/nowhere"}, "all of"),
        ({ISSUER: "x", AUDIENCE: "y"}, "all of"),
        ({JWKS: "/nowhere", ISSUER: "x", AUDIENCE: " , "}, "all of"),
        ({JWKS: "/nowhere", ISSUER: "x", AUDIENCE: "y"}, "cannot be read"),
        ({JWKS: __file__, ISSUER: "x", AUDIENCE: "y"}, "no JSON Web Key Set"),
        ({JWKS: "http://issuer.example/certs", ISSUER: "x", AUDIENCE: "y"}, "https address"),
        ({JWKS: "https://me:secret@issuer.example/certs", ISSUER: "x", AUDIENCE: "y"}, "without a user name"),
        ({JWKS: "ftp://localhost/certs", ISSUER: "x", AUDIENCE: "y"}, "https address"),
        ({JWKS: "https://[::1/certs", ISSUER: "x", AUDIENCE: "y"}, "https address"),
    ],
)
def test_settings_that_cannot_hold_stop_the_start_with_a_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        KeyRing.from_environment(settings)
    assert "secret" not in str(refused.value)


async def test_a_subjects_requests_are_limited_and_it_is_no_key_of_that_name(running: Issuer) -> None:
    key = new_key()
    keys = ring(running.url, **{KEYS: entry("alice", key), KEY_LIMITS: "requests_per_minute=2"})
    app = create_app(FakeBackend(), keys)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
        statuses = []
        for given in (token(), token(exp=NOW + 999), token(), token(sub="bob"), key, token(kid="other")):
            answer = await http.get("/v1/models", headers={"Authorization": f"Bearer {given}"})
            statuses.append(answer.status_code)
    assert statuses == [200, 200, 429, 200, 200, 401]


def test_many_subjects_take_bounded_memory_and_the_running_ones_keep_their_count() -> None:
    meters, limits = Meters(), KeyLimits(concurrent=1)
    busy, idle = meters.of("busy", limits), meters.of("idle", limits)
    with busy.request():
        for number in range(MAX_METERS + 100):
            meters.of(f"token:{number}", limits)
        assert len(meters) <= MAX_METERS + 1
        assert meters.of("busy", limits) is busy
        assert meters.of("idle", limits) is not idle


async def test_no_key_and_no_token_comes_into_the_log(running: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = new_key()
    app = create_app(FakeBackend(), ring(running.url, **{KEYS: f"{entry('bob', key)} scopes=voices"}))
    presented = [key, f"{key}x", token(), token(scope="admin"), token(kid="other"), f"{token()}x", "a.b.c"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
        for given in presented:
            await http.post("/v1/audio/speech", json={"input": "Hi."}, headers={"Authorization": f"Bearer {given}"})
        running.status = 500
        await http.get("/v1/models", headers={"Authorization": f"Bearer {token(kid='again')}"})
    assert caplog.records
    told = caplog.text
    assert not [given for given in presented if len(given) > 10 and given in told]
    assert hashlib.sha256(key.encode()).hexdigest() not in told
