"""A collector of OTLP over HTTP: keeps the spans that a server sends to it."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class SentSpan:
    """Ids in hexadecimal, as `traceparent` has them; `links`: ids of spans."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: frozenset[str]
    seconds: float
    attributes: dict[str, Any]


@dataclass
class Collector:
    """A context manager; listens at `url`."""

    spans: list[SentSpan] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector._take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Nothing of it belongs into the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def trace(self, trace_id: str, complete: Callable[[dict[str, SentSpan]], object]) -> dict[str, SentSpan]:
        """The trace's spans by their names, as soon as they are `complete`."""
        deadline = time.monotonic() + 15
        while True:
            found = {span.name: span for span in list(self.spans) if span.trace_id == trace_id}
            if complete(found):
                return found
            assert time.monotonic() < deadline, f"only {sorted(found)} came"
            time.sleep(0.05)

    def _take(self, message: ExportTraceServiceRequest) -> None:
        for resource in message.resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
            for scope in resource.scope_spans:
                self.spans += map(_read, scope.spans)


def _read(span: Any) -> SentSpan:
    values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
    return SentSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=frozenset(link.span_id.hex() for link in span.links),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        attributes=values,
    )
