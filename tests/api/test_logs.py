"""The lines of the log: one form for all, and no exception that tells what a client sent."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from api.app import create_app
from api.errors import ApiError
from api.exchange import begun
from api.logs import JsonLines, TextLines, configure
from runners.request import ModelInfo
from tests.api.oip_backend import FakeBackend

SECRET = "xylophonist"


def _record(error: Exception | None = None, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("cosyserve.api", logging.ERROR, "", 0, "a %s failed", ("request",), None)
    if error is not None:
        try:
            raise error
        except Exception as raised:
            record.exc_info = (type(raised), raised, raised.__traceback__)
    if fields:
        record.__dict__["fields"] = fields
    return record


def test_text_keeps_what_a_client_chose_within_its_field() -> None:
    line = TextLines().format(_record(key='a" outcome=ok\nforged', status=200))
    assert line.endswith(' a request failed key="a\\" outcome=ok\\nforged" status=200') and "\n" not in line


def test_json_is_one_object_in_one_line() -> None:
    line = JsonLines().format(_record(ValueError("x"), key="two\nlines"))
    values = json.loads(line)
    assert "\n" not in line and values["key"] == "two\nlines" and values["level"] == "error"
    assert values["exception"].splitlines()[-1] == "ValueError"


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()])
@pytest.mark.parametrize(
    "error",
    [
        ValueError(SECRET),
        KeyError(SECRET),
        ApiError(400, "unknown_phone", f"There is no {SECRET}."),
    ],
)
def test_an_exception_does_not_quote_what_may_be_a_clients(
    lines: logging.Formatter, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = RuntimeError("out of memory")
    outer.__cause__ = error
    told = lines.format(_record(outer))
    assert SECRET not in told and type(error).__name__ in told and "RuntimeError: out of memory" in told
    monkeypatch.setenv("COSYSERVE_LOG_INPUT", "1")
    assert SECRET in lines.format(_record(outer))


def test_a_line_within_a_request_has_its_id() -> None:
    with begun({"x-request-id": "mine"}, "GET"):
        assert json.loads(JsonLines().format(_record()))["request_id"] == "mine"
    assert "request_id" not in json.loads(JsonLines().format(_record()))


class Broken(FakeBackend):
    async def describe(self) -> ModelInfo:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("backend", "outcome", "level"),
    [(FakeBackend(), "invalid_type", logging.INFO), (Broken(), "internal_error", logging.WARNING)],
)
def test_only_a_session_that_the_server_broke_is_a_warning(
    backend: FakeBackend, outcome: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "cosyserve.request"),
        pytest.raises(WebSocketDisconnect),
        TestClient(create_app(backend)).websocket_connect("/v1/audio/speech/stream") as socket,
    ):
        socket.send_bytes(b"no text")
        while True:
            socket.receive_json()
    (record,) = (one for one in caplog.records if one.name == "cosyserve.request")
    assert (record.__dict__["fields"]["outcome"], record.levelno) == (outcome, level)


@pytest.mark.parametrize(("asked", "told"), [("1", SECRET), ("0", None), (None, None)])
def test_texts_are_logged_only_where_they_are_asked_for(
    asked: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("COSYSERVE_LOG_INPUT", raising=False)
    if asked is not None:
        monkeypatch.setenv("COSYSERVE_LOG_INPUT", asked)
    with caplog.at_level(logging.INFO, "cosyserve"), begun({}, "POST") as exchange:
        exchange.speaks(SECRET, "preset")
    (record,) = caplog.records
    fields = record.__dict__["fields"]
    assert fields.get("input") == told and fields["characters"] == len(SECRET)


def test_an_unknown_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_LOG_FORMAT", "xml")
    with pytest.raises(ValueError, match="COSYSERVE_LOG_FORMAT=xml is not a format: give text or json"):
        configure()
