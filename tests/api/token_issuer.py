"""A token issuer: keys of every kind, tokens signed with them, and a real HTTP server of its key set on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

ISSUER, AUDIENCE = "https://issuer.example/realm", "tts"
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(public_exponent=65_537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def jwk(algorithm: str, kid: str, **more: str) -> dict[str, Any]:
    """The public key, in the key set's shape."""
    public = get_default_algorithms()[algorithm].to_jwk(PRIVATE[algorithm].public_key(), as_dict=True)
    return {**public, "kid": kid, "use": "sig", **more}


def jwks(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys})


def token(algorithm: str = "ES256", kid: str | None = "one", **claims: Any) -> str:
    """A good one but for what `claims` say otherwise; a claim that is None is left out."""
    now = int(time.time())
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 300, "scope": "openid speech"}
    payload = {name: value for name, value in (usual | claims).items() if value is not None}
    return jwt.encode(payload, PRIVATE[algorithm], algorithm, headers={} if kid is None else {"kid": kid})


class Issuer:
    """`body` and `status`: what the server answers; `asked`: how often it was."""

    def __init__(self) -> None:
        self.body, self.status, self.asked = jwks(jwk("ES256", "one")), 200, 0
        self.headers: dict[str, str] = {}
        self.url = ""


@contextmanager
def issuer() -> Iterator[Issuer]:
    state = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked += 1
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(state.body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}/certs"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()
