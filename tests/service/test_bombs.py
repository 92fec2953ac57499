"""Small messages that would become large ones inside are refused by the real service, which stays small."""

from __future__ import annotations

import gzip

import httpx
import psutil
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from launch.server import Server
from tests.service.conftest import recording

MANY = 256 * 2**20
GROWTH = 100 * 2**20
"""Less than half of what is packed."""


def entry(server: Server) -> psutil.Process:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = [child for child in children if "service-name cosyserve" in " ".join(child.cmdline())]
    return found


@pytest.mark.parametrize("path", ["/v1/audio/speech/stream", "/api-ws/v1/inference"])
def test_a_packed_message_is_unpacked_up_to_the_limit_only(server: Server, path: str) -> None:
    process = entry(server)
    before = process.memory_info().rss
    with connect(server.url.replace("http", "ws", 1) + path, close_timeout=5) as socket:
        assert socket.response is not None
        assert "permessage-deflate" in socket.response.headers.get("sec-websocket-extensions", "")
        with pytest.raises(ConnectionClosed) as closed:
            socket.send("a" * MANY)
            while True:
                socket.recv(30)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    assert process.memory_info().rss - before < GROWTH


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_packed_body_is_never_unpacked(server: Server, http: httpx.Client, coding: str) -> None:
    process = entry(server)
    before = process.memory_info().rss
    answer = http.post("/v1/audio/speech", content=gzip.compress(bytes(MANY)), headers={"content-encoding": coding})
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["code"] in ("input_not_utf8", "invalid_json", "unsupported_encoding")
    assert process.memory_info().rss - before < GROWTH


@pytest.mark.parametrize("name", ["a\r\nX-Evil: 1", "a\nX-Evil: 1", 'a"; filename="b', "../../etc/passwd", "a\x00b"])
def test_no_header_is_made_of_what_a_client_sends(http: httpx.Client, name: str) -> None:
    for answer in (
        http.post("/v1/audio/speech", json={"input": "Hi.", "voice": name}),
        http.post("/v1/audio/speech", json={"input": "Hi.", "model": name}),
        http.post("/v1/audio/speech", json={"input": "Hi.", "response_format": name}),
        http.post("/v1/audio/speech", json={"input": "Hi.", "ref_audio": recording(), "ref_text": name, "voice": name}),
    ):
        assert 400 <= answer.status_code < 500
        assert not any("evil" in field.lower() or "passwd" in text for field, text in answer.headers.items())
