"""One request of a client from its first to its last byte: its id, its trace, and its line in the log when it ends.

A WebSocket session and a gRPC call are one each. Texts, transcripts, recordings and keys are never part of it, but for
the texts that COSYSERVE_LOG_INPUT=1 asks for.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from runners.tracing import Trace, given_trace_id

logger = logging.getLogger("cosyserve.request")

LOG_INPUT = "COSYSERVE_LOG_INPUT"
UNMATCHED = "unmatched"
"""The route of what there is none for: a path that is no route's may hold anything."""
_CLIENTS_FAULTS = frozenset(["idle_timeout", "deadline_exceeded", "client_stalled"])
"""Those that the status does not tell."""
_FAULTY = frozenset(["INTERNAL", "UNKNOWN", "UNAVAILABLE", "UNIMPLEMENTED"])
"""Statuses of gRPC."""
_FAULTY_CLOSES = frozenset([1011, 1012, 1013])
"""Of a WebSocket (RFC 6455 and its registry): the server failed, it stops, it has no room."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


@dataclass
class Exchange:
    """What is known so far. `route`: the pattern, not the path. `outcome`: a code, once something went wrong.
    `session`: it may last, and most of that time is the client's. `quiet`: of no interest if it ends well.
    `recorded`: a Recording counts it. `close_code`: of a WebSocket that did not end well.

    `queued_s`: seconds in the engine before its first step. `first_audio_s`: to the first audio. `texts`: as asked for.
    """

    request_id: str
    method: str
    trace: Trace | None = None
    trace_id: str | None = None
    session: bool = False
    quiet: bool = False
    route: str = UNMATCHED
    status: int | str | None = None
    close_code: int | None = None
    outcome: str | None = None
    recorded: bool = False
    caller: str | None = None
    mode: str | None = None
    characters: int = 0
    audio_s: float = 0.0
    queued_s: float | None = None
    first_audio_s: float | None = None
    texts: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> bool:
        return self.outcome not in (None, "ok", "cancelled")

    @property
    def servers_fault(self) -> bool:
        """Whether it failed for a reason that its client could not have avoided."""
        if not self.failed or self.outcome in _CLIENTS_FAULTS:
            return False
        if self.close_code is not None:
            return self.close_code in _FAULTY_CLOSES
        if isinstance(self.status, str):
            return self.status in _FAULTY
        return self.status is None or not 400 <= self.status < 500

    def ended(self, outcome: str) -> None:
        """How it ended, if it is not known yet."""
        self.outcome = self.outcome or outcome

    def speaks(self, text: str, mode: str) -> None:
        self.mode = mode if self.mode in (None, mode) else "mixed"
        self.characters += len(text)
        if os.environ.get(LOG_INPUT) == "1":
            self.texts.append(text)

    def heard(self, seconds: float, first_audio_s: float | None) -> None:
        """More audio was made; `first_audio_s`: what its speech had to wait for the first of it."""
        self.audio_s += seconds
        if self.first_audio_s is None:
            self.first_audio_s = first_audio_s

    def fields(self) -> dict[str, Any]:
        """Those of its line that are known, times in seconds."""
        duration = time.monotonic() - self.began
        known = {
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "route": self.route,
            "method": self.method,
            "status": self.status,
            "outcome": self.outcome or "ok",
            "mode": self.mode,
            "key": self.caller,
            "characters": self.characters or None,
            "queue_wait_s": self.queued_s,
            "ttfa_s": self.first_audio_s,
            "duration_s": duration,
            "audio_s": self.audio_s or None,
            "rtf": duration / self.audio_s if self.audio_s and not self.session else None,
            "input": "\n".join(self.texts) or None,
        }
        known = {name: value for name, value in known.items() if value is not None}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in known.items()}


_CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current() -> Exchange | None:
    """That which this code runs for."""
    return _CURRENT.get()


@contextmanager
def begun(headers: Mapping[str, str], method: str, *, session: bool = False, quiet: bool = False) -> Iterator[Exchange]:
    """The block is one exchange; its line is written, and its span is sent, when it is left."""
    trace = Trace.begin(method, headers, server=True)
    exchange = Exchange(
        request_id=_request_id(headers.get("x-request-id", "")),
        method=method,
        trace=trace,
        trace_id=given_trace_id(headers) if trace is None else trace.trace_id,
        session=session,
        quiet=quiet,
    )
    token = _CURRENT.set(exchange)
    try:
        yield exchange
    finally:
        _CURRENT.reset(token)
        _tell(exchange)


def _request_id(given: str) -> str:
    """The client's own, where it can go into any header, log or shell as it is."""
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _tell(exchange: Exchange) -> None:
    if exchange.quiet and not exchange.failed:
        return
    fields = exchange.fields()
    level = logging.WARNING if exchange.servers_fault else logging.INFO
    logger.log(level, "request", extra={"fields": fields})
    if exchange.trace is not None:
        attributes = {name: value for name, value in fields.items() if name not in _ELSEWHERE}
        attributes |= {"http.request.method": exchange.method, "http.route": exchange.route}
        if isinstance(exchange.status, int):
            attributes["http.response.status_code"] = exchange.status
        name = f"{exchange.method} {exchange.route}"
        exchange.trace.end(attributes, name=name, failed=exchange.outcome if exchange.servers_fault else None)


_ELSEWHERE = frozenset(["trace_id", "route", "method", "status", "input"])
"""Fields that a span has by other names, or that are for the log alone."""
