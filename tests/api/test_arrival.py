"""Bodies that do not finish arriving: a bound before SIGTERM, a goodbye from then on, in the shape of each protocol."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI

from api.app import create_app
from tests.api.oip_backend import FakeBackend

SPEECH, GENERATE = "/v1/audio/speech", "/v2/models/tiny/generate"
PATHS = [
    SPEECH,
    "/v1/models/tiny:predict",
    "/v2/models/tiny/infer",
    GENERATE,
    "/v2/models/tiny/generate_stream",
    "/v2/repository/models/tiny/load",
]


class Upload:
    """A request of which only the first half has arrived, and what is answered."""

    def __init__(self, path: str, body: bytes, backend: FakeBackend, app: FastAPI | None = None) -> None:
        self.app = app or create_app(backend)
        self._path, half = path, len(body) // 2
        self._rest = body[half:]
        self._arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.arrive(body[:half])
        self._sent: list[Any] = []

    def arrive(self, data: bytes, more: bool = True) -> None:
        self._arrived.put_nowait({"type": "http.request", "body": data, "more_body": more})

    def finish(self) -> None:
        self.arrive(self._rest, more=False)

    async def answer(self) -> tuple[int, dict[bytes, bytes], Any]:
        """Status, headers and JSON."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
            "scheme": "http",
        }

        async def send(message: Any) -> None:
            self._sent.append(message)

        await asyncio.wait_for(self.app(scope, self._arrived.get, send), 10)
        start, *rest = self._sent
        content = b"".join(message.get("body", b"") for message in rest)
        headers = dict(start["headers"])
        return start["status"], headers, json.loads(content) if b"json" in headers[b"content-type"] else content


def _code(path: str, content: Any) -> str:
    return content["error"]["code"] if path == SPEECH else content["error"].split(": ")[0]


@pytest.mark.parametrize("path", PATHS)
async def test_draining_ends_a_request_whose_body_is_not_complete(path: str) -> None:
    upload = Upload(path, b'{"input": "Hello."}', FakeBackend())
    answering = asyncio.ensure_future(upload.answer())
    await asyncio.sleep(0.1)
    assert not answering.done()
    upload.app.state.draining.set()
    status, headers, content = await answering
    assert (status, _code(path, content)) == (503, "draining")
    assert headers[b"retry-after"]


async def test_a_body_that_was_about_to_arrive_is_answered_while_draining() -> None:
    upload = Upload(GENERATE, b'{"text": "Hello."}', FakeBackend())
    answering = asyncio.ensure_future(upload.answer())
    await asyncio.sleep(0.1)
    upload.app.state.draining.set()
    await asyncio.sleep(0.1)
    upload.finish()
    status, _, content = await answering
    assert status == 200
    assert content["audio"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_stalls_is_not_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.arrival.MESSAGE_SECONDS", 0.1)
    backend = FakeBackend()
    status, _, content = await Upload(path, b'{"input": "Hello."}', backend).answer()
    assert (status, _code(path, content)) == (408, "upload_stalled")
    assert backend.requests == []


async def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.arrival.MESSAGE_SECONDS", 0.5)
    upload = Upload(GENERATE, b'{"text": "Hello."}', FakeBackend())
    answering = asyncio.ensure_future(upload.answer())
    while not answering.done():
        upload.arrive(b" ")
        await asyncio.sleep(0.02)
    status, _, content = await answering
    assert (status, _code(GENERATE, content)) == (408, "upload_stalled")


async def test_a_body_in_many_pieces_is_read() -> None:
    upload = Upload(GENERATE, b'{"text": "Hello."}', FakeBackend())
    answering = asyncio.ensure_future(upload.answer())
    for _ in range(4):
        await asyncio.sleep(0.05)
        upload.arrive(b" ")
    upload.finish()
    assert (await answering)[0] == 200


async def test_large_bodies_that_are_on_their_way_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.arrival.MAX_BYTES_AT_ONCE", 250_000)
    body = json.dumps({"input": "Hello."}).encode() + b" " * 200_000
    upload = Upload(SPEECH, body, FakeBackend())
    others = [Upload(SPEECH, body, FakeBackend(), upload.app) for _ in range(2)]
    small = Upload(SPEECH, b'{"input": "Hello.", "response_format": "gif"}', FakeBackend(), upload.app)
    small.finish()
    answering = [asyncio.ensure_future(one.answer()) for one in (upload, *others)]
    status, headers, content = await answering[2]  # 100 kB each are there, of which two are within the limit
    assert (status, _code(SPEECH, content)) == (503, "overloaded")
    assert headers[b"retry-after"]
    assert (await small.answer())[0] == 400  # small ones always come in
    others[0].arrive(b" ", more=False)
    assert (await answering[1])[0] == 200
    upload.finish()
    assert (await answering[0])[0] == 200
    again = Upload(SPEECH, body, FakeBackend(), upload.app)
    again.finish()
    assert (await again.answer())[0] == 200  # all has been given back


@pytest.mark.parametrize(("path", "status"), [(SPEECH, 503), (GENERATE, 503), ("/metrics", 404)])
async def test_once_it_drains_the_server_takes_nothing_new(path: str, status: int) -> None:
    backend = FakeBackend()
    upload = Upload(path, b'{"input": "Hello."}', backend)
    upload.finish()
    upload.app.state.draining.set()
    answer = await upload.answer()
    assert answer[0] == status
    assert status != 503 or _code(path, answer[2]) == "draining"
    assert not backend.requests
