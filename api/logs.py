"""One format for every line that a process of the service logs, BentoML's own included: text, or JSON."""

from __future__ import annotations

import json
import logging
import os
import traceback
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

import bentoml

from api.exchange import LOG_INPUT, current

LOG_FORMAT = "COSYSERVE_LOG_FORMAT"
FORMATS = ("text", "json")
# Where BentoML puts a handler; each of these loggers has the same one.
_BENTOML = ("bentoml", "uvicorn.error", "circus")
# What these say comes from the system or from torch. The message of others may quote what a client sent: its text, say.
_HARMLESS = (OSError, RuntimeError, MemoryError)


def configure() -> None:
    """Every line of this process in the format of COSYSERVE_LOG_FORMAT. Only where BentoML serves: elsewhere it has no
    handler that could be taken over. Raises ValueError with a sentence."""
    wanted = os.environ.get(LOG_FORMAT) or FORMATS[0]
    if wanted not in FORMATS:
        raise ValueError(f"{LOG_FORMAT}={wanted} is not a format: give {' or '.join(FORMATS)}.")
    logging.getLogger("cosyserve").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        if any(type(one).__module__.startswith("bentoml.") for one in handler.filters):
            logging.captureWarnings(True)
            handler.filters.clear()
            handler.setFormatter(JsonLines() if wanted == "json" else TextLines())
            for name in _BENTOML:  # theirs come by way of the root logger, once
                logger = logging.getLogger(name)
                logger.propagate = True
                logger.removeHandler(handler)


class Lines(logging.Formatter):
    """What both formats have: when, where, and what is known of the request that the line belongs to."""

    def fields_of(self, record: logging.LogRecord) -> dict[str, Any]:
        """`fields` of the record's `extra`; the request's id and trace, where the line belongs to one."""
        fields = getattr(record, "fields", None)
        if fields is None and (exchange := current()) is not None:
            fields = {"request_id": exchange.request_id, "trace_id": exchange.trace_id}
        return {name: value for name, value in (fields or {}).items() if value is not None}

    def time_of(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")

    def traceback_of(self, record: logging.LogRecord) -> str | None:
        error = record.exc_info[1] if record.exc_info else None
        return None if error is None else "\n".join(_chain(error))

    def process_of(self) -> str:
        return bentoml.server_context.service_name or "main"


class TextLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        known = "".join(f" {name}={_word(value)}" for name, value in self.fields_of(record).items())
        head = f"{self.time_of(record)} [{record.levelname}] [{self.process_of()}]"
        trace = self.traceback_of(record)
        return f"{head} {record.getMessage()}{known}" + (f"\n{trace}" if trace else "")


class JsonLines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.time_of(record),
            "level": record.levelname.lower(),
            "process": self.process_of(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields_of(record),
        }
        if (trace := self.traceback_of(record)) is not None:
            line["exception"] = trace
        return json.dumps(line, default=str)


def _word(value: Any) -> str:
    text = str(value)
    return text if text and not set(text) & set(' "=\n\r\t') and text.isprintable() else json.dumps(text)


def _chain(error: BaseException, seen: int = 0) -> list[str]:
    """The tracebacks of an exception and, before it, of what led to it, without what may quote a client."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [*_chain(cause, seen + 1), "which led to:"] if cause is not None and seen < 8 else []
    trace: TracebackType | None = error.__traceback__
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    frames = "".join(traceback.format_tb(trace)).rstrip()
    return [*before, "Traceback (most recent call last):", frames, f"{kind}{_said(error)}"]


def _said(error: BaseException) -> str:
    if isinstance(error, _HARMLESS) or os.environ.get(LOG_INPUT) == "1":
        return f": {error}"
    code = getattr(error, "code", None)
    return f": {code}" if isinstance(code, str) else ""
