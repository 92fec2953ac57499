"""Traces, sent by OTLP to where the standard OTEL_* variables say; nothing is loaded where they say nothing.

One span per request and process, and below it one per stage that sums the stage's steps: thousands of decode steps
would be unreadable, and cost more than they tell. Requests that shared a step link to each other.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, SpanContext

logger = logging.getLogger("cosyserve.tracing")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MAX_LINKS = 32  # of one span
Attributes = Mapping[str, "str | int | float | bool"]


@lru_cache(maxsize=1)
def provider() -> TracerProvider | None:
    """What this process sends its spans through; None: nobody wants them, or the extra `otlp` is missing."""
    if not any(map(os.environ.get, ENDPOINTS)) or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("no traces are sent: %s is set, but the extra `otlp` is not installed", ENDPOINTS[1])
        return None
    made = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "cosyserve")}))
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


def flush() -> None:
    """Send what has not been sent yet: the process is about to end."""
    if (made := provider()) is not None:
        made.force_flush(5000)


@dataclass
class _Stage:
    """Steps of one stage. `busy`: seconds that they took together; `most`: requests in the largest of them."""

    began: float
    ended: float = 0.0
    busy: float = 0.0
    steps: int = 0
    served: int = 0
    most: int = 0
    shared: dict[int, SpanContext] = field(default_factory=dict)  # by id of the span


class Trace:
    """One request in this process: its span, and the stages that become spans when it ends. All times are monotonic."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._stages: dict[str, _Stage] = {}

    @classmethod
    def begin(cls, name: str, carrier: Mapping[str, str], *, server: bool = False) -> Trace | None:
        """Goes on with the trace in `carrier` (W3C `traceparent`, `tracestate`), or begins one where there is none or a
        malformed one. `server`: it came from a client. None: it is not to be recorded."""
        if (made := provider()) is None:
            return None
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        kind = SpanKind.SERVER if server else SpanKind.INTERNAL
        context = _propagator().extract(carrier, Context())
        return cls(made.get_tracer("cosyserve").start_span(name, context, kind))

    @property
    def recorded(self) -> bool:
        """False where whoever began the trace, or the sampler, does not want it."""
        return self._span.is_recording()

    @property
    def context(self) -> SpanContext:
        return self._span.get_span_context()

    @property
    def trace_id(self) -> str:
        return format(self.context.trace_id, "032x")

    @property
    def traceparent(self) -> str:
        """For who goes on with this trace."""
        return f"00-{self.trace_id}-{self.context.span_id:016x}-{self.context.trace_flags:02x}"

    def step(self, stage: str, began: float, ended: float, batch: int = 1) -> None:
        """One step of `stage`, which worked for `batch` requests."""
        one = self._stages.setdefault(stage, _Stage(began))
        one.ended, one.most = max(one.ended, ended), max(one.most, batch)
        one.busy += ended - began
        one.steps += 1
        one.served += batch

    def shared(self, stage: str, others: Iterable[SpanContext]) -> None:
        """Whose steps of `stage` were this one's too."""
        links = self._stages[stage].shared
        for other in others:
            if len(links) < MAX_LINKS and other.span_id != self.context.span_id:
                links[other.span_id] = other

    def end(
        self,
        attributes: Mapping[str, str | int | float | None] | None = None,
        *,
        name: str | None = None,
        failed: str | None = None,
    ) -> None:
        """`name`: instead of that which it began with. `failed`: the code of what went wrong here. Attributes that are
        None are left out."""
        if not self.recorded:
            return
        from opentelemetry.trace import Link, Status, StatusCode

        for stage, one in list(self._stages.items()):
            self._stage_span(stage, one, [Link(context) for context in list(one.shared.values())])
        if name is not None:
            self._span.update_name(name)
        known = {key: value for key, value in (attributes or {}).items() if value is not None}
        self._span.set_attributes(_namespaced(known))
        if failed is not None:
            self._span.set_attribute("error.type", failed)
            self._span.set_status(Status(StatusCode.ERROR, failed))
        self._span.end()

    def _stage_span(self, stage: str, one: _Stage, links: Sequence[Link]) -> None:
        from opentelemetry.trace import set_span_in_context

        made = provider()
        assert made is not None, "there is no span without it"
        sums = {
            "steps": one.steps,
            "busy_s": round(one.busy, 6),
            "batch_mean": round(one.served / one.steps, 2),
            "batch_most": one.most,
        }
        context = set_span_in_context(self._span)
        span = made.get_tracer("cosyserve").start_span(
            stage, context, attributes=_namespaced(sums), links=links, start_time=_wall(one.began)
        )
        span.end(_wall(one.ended))


class Traces:
    """Those of the requests that one process works on together, by what stands for the request in its steps."""

    def __init__(self) -> None:
        self._running: dict[Hashable, Trace] = {}
        self._together: dict[str, tuple[int, ...]] = {}  # who shared the last step of a stage

    def follow(self, request: Hashable, trace: Trace | None) -> None:
        if trace is not None and trace.recorded:
            self._running[request] = trace

    def stepped(self, stage: str, began: float, ended: float, requests: Sequence[Any]) -> None:
        """A `runners.stages.OnStage`."""
        if not self._running:
            return
        traces = [trace for request in requests if (trace := self._running.get(request)) is not None]
        for trace in traces:
            trace.step(stage, began, ended, len(requests))
        together = tuple(map(id, traces))
        if len(traces) > 1 and together != self._together.get(stage):
            contexts = [trace.context for trace in traces]
            for trace in traces:
                trace.shared(stage, contexts)
        self._together[stage] = together

    def end(self, request: Hashable, failed: str | None = None, **attributes: str | int | float | None) -> None:
        if (trace := self._running.pop(request, None)) is not None:
            trace.end(attributes, failed=failed)


def shared_step(stage: str, began: float, ended: float, items: Sequence[Mapping[str, Any]]) -> None:
    """A `runners.stages.OnStage`: one step for `items`, of which those with a `traceparent` get a span each."""
    if (made := provider()) is None:
        return
    from opentelemetry.context import Context

    tracer, size = made.get_tracer("cosyserve"), {"cosyserve.batch": len(items)}
    spans = [
        tracer.start_span(stage, _propagator().extract(item, Context()), attributes=size, start_time=_wall(began))
        for item in items
        if item.get("traceparent")
    ]
    for span in spans:
        for other in spans[:MAX_LINKS]:
            if other is not span and other.is_recording():
                span.add_link(other.get_span_context())
    for span in spans:
        span.end(_wall(ended))


def given_trace_id(carrier: Mapping[str, str]) -> str | None:
    """The trace that a client's `traceparent` belongs to; None where there is none, or a malformed one."""
    if "traceparent" not in carrier:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import get_current_span

    context = get_current_span(_propagator().extract(carrier, Context())).get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None


@lru_cache(maxsize=1)
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _namespaced(attributes: Attributes) -> dict[str, Any]:
    """Names of OpenTelemetry's conventions have a dot; the others are this project's."""
    return {name if "." in name else f"cosyserve.{name}": value for name, value in attributes.items()}


def _wall(monotonic: float) -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns() - int((time.monotonic() - monotonic) * 1e9)
