"""Whatever fits the OpenAPI document or does not: an answer in time, in the document's shape, and no server error."""

from __future__ import annotations

import json
import re
import socket
import time
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.openapi import document, websockets
from launch.server import Server
from tests.api.oip_backend import FakeBackend

APP = create_app(FakeBackend())
DOCUMENT = document(APP)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SECONDS = 30.0
"""For one answer to its last byte. Texts that are made up are short."""
NEVER_HERE = {"unload_unsupported", "voice_store_off"}


@SCHEMA.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail_or_hang(case: schemathesis.Case, server: Server) -> None:
    began = time.monotonic()
    answer = case.call(base_url=server.url, timeout=SECONDS)
    assert time.monotonic() - began < SECONDS
    if answer.status_code == 501:
        assert any(code in answer.text for code in NEVER_HERE)
    checks = [content_type_conformance, response_schema_conformance, status_code_conformance]
    if answer.status_code != 501:
        checks.append(not_a_server_error)
    case.validate_response(answer, checks=checks)


def test_the_document_is_the_servers_and_has_every_route(http: httpx.Client) -> None:
    served = http.get("/openapi.json").json()
    assert served == http.get("/docs.json").json()
    assert served["paths"].keys() == DOCUMENT["paths"].keys()
    undescribed = [path for path, methods in served["paths"].items() for it in methods.values() if not _words(it)]
    assert undescribed == []
    sockets = list(websockets(APP))
    assert len(sockets) >= 2
    for route in {route.endpoint: route for route in reversed(sockets)}.values():
        _, _, prose = served["info"]["description"].partition(f"### WebSocket `{route.path}`")
        assert len(prose.partition("###")[0].split()) > 10, route.path


def _words(operation: dict[str, Any]) -> str:
    return operation.get("description") or operation["summary"]


def test_pages_load_nothing_from_elsewhere(http: httpx.Client) -> None:
    home = http.get("/", headers={"Accept": "text/html"})
    assert (home.status_code, home.headers["location"]) == (307, "ui/")
    for path in ("/docs", "/ui/"):
        page = http.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["x-content-type-options"] == "nosniff"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert not re.search(r"https?:|\*", policy)
        parts = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert len(parts) > 2
        assert "<script>" not in page.text  # the policy allows files only
        for part in parts:
            found = http.get(str(httpx.URL(f"http://server{path}").join(part).raw_path, "ascii"))
            assert found.status_code == 200, part


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/livez", 404, "not_found"),
        ("POST", "/", 404, "not_found"),
        ("GET", "/v1/audio/voices/line%0Abreak", 404, "voice_not_found"),
        ("GET", "/line%0Abreak", 404, "not_found"),
        ("TRACE", "/v1/audio/speech", 405, "method_not_allowed"),
        ("GET", "/v1/audio/voices?model=", 200, ""),
    ],
)
def test_every_path_and_method_has_an_answer_of_this_api(
    http: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["x-request-id"]
    if code:
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == (code, "invalid_request_error")
        assert error.keys() == {"message", "type", "param", "code"}


def test_a_body_is_refused_before_it_is_sent_where_the_client_asks_first(server: Server) -> None:
    head = "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    with socket.create_connection((server.host, server.port), timeout=SECONDS) as connection:
        connection.sendall(f"{head}Content-Length: 999999999\r\n\r\n".encode())
        answer = HTTPResponse(connection)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (413, "payload_too_large")


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_pages_from_elsewhere_get_nothing(http: httpx.Client, headers: dict[str, str]) -> None:
    answer = http.get("/v1/audio/voices", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
