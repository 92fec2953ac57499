"""A Prometheus over HTTP that knows CosyServe's metrics of single revisions, and can be ill in several ways."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Series:
    """What is counted of one revision in any window; None: no such series."""

    requests: float | None = 200
    faults: float | None = None
    streams: float | None = 150
    broken_streams: float | None = None
    ttfa: float | None = 0.4
    rtf: float | None = 0.3


# The query's own words decide, the narrower ones first.
KINDS = (
    ("cosyserve_ttfa_seconds_bucket", "ttfa"),
    ("cosyserve_rtf_bucket", "rtf"),
    ("cosyserve_discontinuous_streams_total", "broken_streams"),
    ("cosyserve_streams_total", "streams"),
    ("outcome=~", "faults"),
    ("cosyserve_requests_total", "requests"),
)


@dataclass
class FakePrometheus:
    """Answers instant queries from `series` by revision; `illness`: empty, error, not-json, nested,

    slow, trickle, twice, refuse.
    """

    series: dict[str, Series] = field(default_factory=dict)
    illness: str = ""
    on_query: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.queries: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> FakePrometheus:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def change(self, revision: str, **values: float | None) -> None:
        self.series[revision] = replace(self.series.get(revision, Series()), **values)

    def answer(self, query: str) -> tuple[int, bytes]:
        self.queries.append(query)
        if self.on_query is not None:
            self.on_query()
        if self.illness == "slow":
            time.sleep(1.0)
        if self.illness == "error":
            return 500, json.dumps({"status": "error", "errorType": "internal", "error": "query timed out"}).encode()
        if self.illness == "not-json":
            return 502, b"<html>bad gateway</html>"
        if self.illness == "nested":
            return 200, b"[" * 200_000
        found = re.search(r'revision="([^"]*)"', query)
        kind = next((name for words, name in KINDS if words in query), None)
        if found is None or kind is None or 'namespace="tts"' not in query:
            return 400, json.dumps({"status": "error", "errorType": "bad_data", "error": "unknown query"}).encode()
        series = self.series.get(found.group(1))
        value = None if series is None or self.illness == "empty" else getattr(series, kind)
        result = [] if value is None else [{"metric": {}, "value": [time.time(), _text(value)]}]
        if self.illness == "twice":
            result *= 2
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def _text(value: float) -> str:
    return "NaN" if value != value else str(value)


def _handler(fake: FakePrometheus) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
            if self.illness_refuses():
                return
            code, payload = fake.answer(query)
            self.send_response(code)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            # The client may have given up meanwhile.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while fake.illness == "trickle":
                    self.wfile.write(b" ")
                    time.sleep(0.1)
                self.wfile.write(payload)

        def illness_refuses(self) -> bool:
            """Drops the connection as a proxy without a backend does."""
            if fake.illness == "refuse":
                self.close_connection = True
                self.connection.close()
            return fake.illness == "refuse"

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
