"""WebSocket sessions whose messages are damaged, out of order or there twice: each is followed or refused, and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.app import create_app
from tests.api.oip_backend import FakeBackend
from tests.api.test_dashscope_protocol import message, run
from tests.fuzz.damage import CHANGES, EDITS, HANG_SECONDS, TIMES, Changes, Edits, damaged, edited
from tests.service.conftest import recording

STREAM, DASHSCOPE = "/v1/audio/speech/stream", "/api-ws/v1/inference"
SHORT = recording(seconds=1.2, rate=16_000)
CONFIG = {"type": "session.config", "voice": "cosy", "format": "pcm", "speed": 1.2, "sample_rate": 16_000, "seed": 3}
SESSIONS: dict[str, list[dict[str, Any]]] = {
    STREAM: [
        CONFIG,
        {"type": "input.text", "text": "One sentence. Another, "},
        {"type": "input.flush"},
        {"type": "session.config", "ref_audio": SHORT, "ref_text": "Hm.", "policy": "clause", "extra": {"a": 1}},
        {"type": "response.cancel"},
        {"type": "input.text", "text": "And one more."},
        {"type": "input.done"},
    ],
    DASHSCOPE: [
        json.loads(run(enable_ssml=False, volume=60, rate=1.1, pitch=0.9, format="wav")),
        json.loads(message("continue-task", input={"text": "One sentence. Another, "})),
        json.loads(message("continue-task", input={"text": "and more."})),
        json.loads(message("finish-task", input={})),
    ],
}
CLOSED = {1000, 1003, 1008, 1009}
"""A client's fault, or none: with 1011 the server would say that it has failed."""
LONGEST_QUIET = 0.02
"""Seconds without an answer after which the client leaves."""


class Line:
    """One connection as the application sees it: what the client sends one after the other, and what it gets. The
    client leaves when nothing more comes, and `satisfied` with what has come."""

    def __init__(self, messages: Sequence[str | bytes], satisfied: Callable[[Line], bool] = lambda line: True) -> None:
        self.events: list[dict[str, Any]] = []
        self.audio = 0
        self.closed: int | None = None
        coming = [{"type": "websocket.receive", _kind(message): message} for message in messages]
        self._messages: Iterator[dict[str, Any]] = iter([{"type": "websocket.connect"}, *coming])
        self._answers = 0
        self._satisfied = satisfied

    async def receive(self) -> dict[str, Any]:
        if (coming := next(self._messages, None)) is not None:
            await asyncio.sleep(0)  # what was sent before has its effect, or not yet
            return coming
        heard = -1
        while heard != self._answers or not self._satisfied(self):
            heard = self._answers
            await asyncio.sleep(LONGEST_QUIET)
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(self, message: dict[str, Any]) -> None:
        self._answers += 1
        if (text := message.get("text")) is not None:
            self.events.append(json.loads(text, parse_constant=_no_number))
        elif message["type"] == "websocket.close":
            self.closed = message["code"]
        else:
            self.audio += len(message.get("bytes", b""))


def _kind(message: str | bytes) -> str:
    return "text" if isinstance(message, str) else "bytes"


def _no_number(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def _error_in(event: dict[str, Any]) -> tuple[str, str] | None:
    """Code and message."""
    if event.get("type") == "error":
        return event["code"], event["message"]
    header = event.get("header", {})
    return (header["error_code"], header["error_message"]) if header.get("event") == "task-failed" else None


def _refused(line: Line) -> bool:
    return any(map(_error_in, line.events))


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def app(backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setenv("COSYSERVE_VOICES", str(tmp_path))
    return create_app(backend)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def _through(app: FastAPI, path: str, line: Line) -> None:
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "subprotocols": [],
        "scheme": "ws",
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
        "extensions": {"websocket.http.response": {}},
    }
    await asyncio.wait_for(app(scope, line.receive, line.send), HANG_SECONDS)  # type: ignore[arg-type]


def _check(loop: asyncio.AbstractEventLoop, app: FastAPI, backend: FakeBackend, path: str, line: Line) -> None:
    loop.run_until_complete(_through(app, path, line))
    assert line.closed is None or line.closed in CLOSED, line.events[-1]
    for code, said in filter(None, map(_error_in, line.events)):
        assert code not in ("internal_error", "engine_error")
        assert len(said) > 10
    assert backend.running == 0
    backend.requests.clear()
    backend.encoded.clear()


@pytest.mark.parametrize("path", SESSIONS)
def test_the_sessions_that_are_damaged_are_good(
    loop: asyncio.AbstractEventLoop, app: FastAPI, backend: FakeBackend, path: str
) -> None:
    line = Line([json.dumps(one) for one in SESSIONS[path] if "extra" not in one], lambda line: line.audio > 1_000)
    _check(loop, app, backend, path, line)
    assert not _refused(line)


@pytest.mark.parametrize("path", SESSIONS)
def test_a_session_of_damaged_messages_is_followed_or_refused(
    loop: asyncio.AbstractEventLoop, app: FastAPI, backend: FakeBackend, path: str
) -> None:
    session = SESSIONS[path]
    places = st.lists(st.integers(0, len(session) - 1), max_size=len(session) + 2)

    @settings(max_examples=40 * TIMES, deadline=None)
    @given(st.one_of(st.just([*range(len(session))]), places), EDITS, st.floats(0, 1), CHANGES, st.booleans())
    def hold(order: list[int], edits: Edits, which: float, changes: Changes, binary: bool) -> None:
        said = [session[place] for place in order]
        for message_at, value_at, junk in edits if said else ():
            place = min(int(message_at * len(said)), len(said) - 1)
            said[place] = edited(said[place], value_at, junk)
        messages: list[str | bytes] = [json.dumps(one) for one in said]
        if changes and messages:
            place = min(int(which * len(messages)), len(messages) - 1)
            raw = damaged(json.dumps(said[place]).encode(), changes, 1.0)
            messages[place] = raw if binary else raw.decode(errors="replace")
        _check(loop, app, backend, path, Line(messages))

    hold()


@pytest.mark.parametrize("path", SESSIONS)
def test_a_session_of_noise_is_refused(
    loop: asyncio.AbstractEventLoop, app: FastAPI, backend: FakeBackend, path: str
) -> None:
    @settings(max_examples=15 * TIMES, deadline=None)
    @given(st.lists(st.one_of(st.text(max_size=40), st.binary(max_size=40)), min_size=1, max_size=4))
    @example(["[" * 200_000])
    def hold(messages: list[str | bytes]) -> None:
        _check(loop, app, backend, path, Line(messages, _refused))

    hold()
