"""What a trace is made of: sums instead of steps, links between those who shared them; nothing where nobody asks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from runners import tracing
from runners.tracing import MAX_LINKS, Trace, Traces, shared_step


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "provider", lambda: provider)
    yield exporter
    provider.shutdown()


def _begun() -> Trace:
    trace = Trace.begin("engine", {})
    assert trace is not None
    return trace


def _named(sent: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in sent.get_finished_spans() if span.name == name]


def test_a_thousand_steps_are_one_span(sent: InMemorySpanExporter) -> None:
    traces, trace = Traces(), _begun()
    traces.follow("job", trace)
    for step in range(1000):
        traces.stepped("decode", step, step + 0.5, ["job", "another"])
    traces.end("job", samples=3, nothing=None)
    (decode,) = _named(sent, "decode")
    sums = {"steps": 1000, "busy_s": 500.0, "batch_mean": 2.0, "batch_most": 2}
    assert decode.attributes == {f"cosyserve.{name}": value for name, value in sums.items()}
    assert decode.end_time is not None and decode.start_time is not None
    assert (decode.end_time - decode.start_time) / 1e9 == pytest.approx(999.5, abs=0.1)
    (engine,) = _named(sent, "engine")
    assert engine.attributes == {"cosyserve.samples": 3}


def test_links_are_to_others_once_each_and_bounded(sent: InMemorySpanExporter) -> None:
    traces = Traces()
    jobs = [str(number) for number in range(2 * MAX_LINKS)]
    contexts = {}
    for job in jobs:
        trace = _begun()
        contexts[job] = trace.context
        traces.follow(job, trace)
    for _ in range(3):
        traces.stepped("decode", 0, 1, jobs[:3])
        traces.stepped("flow", 0, 1, jobs)
    for job in jobs:
        traces.end(job)
    decode, flow = _named(sent, "decode"), _named(sent, "flow")
    assert {link.context.span_id for link in decode[0].links} == {contexts[job].span_id for job in jobs[1:3]}
    assert len(decode) == 3 and all(len(span.links) == 2 for span in decode)
    assert len(flow) == len(jobs) and all(len(span.links) == MAX_LINKS for span in flow)


def test_recordings_that_were_encoded_together_link_to_each_other(sent: InMemorySpanExporter) -> None:
    first, second = _begun(), _begun()
    items = [{"traceparent": first.traceparent}, {}, {"traceparent": second.traceparent}]
    shared_step("encode_reference", 0, 1, items)
    spans = _named(sent, "encode_reference")
    assert [span.parent and span.parent.span_id for span in spans] == [first.context.span_id, second.context.span_id]
    assert spans[0].links[0].context == spans[1].get_span_context()
    assert spans[0].attributes == {"cosyserve.batch": 3}


def test_what_failed_is_an_error(sent: InMemorySpanExporter) -> None:
    _begun().end(failed="engine_error")
    (span,) = sent.get_finished_spans()
    assert not span.status.is_ok and span.attributes == {"error.type": "engine_error"}


_NOTHING = """
import sys
from api.exchange import begun
from api.tracing import stage
with begun({"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}, "GET") as exchange, stage("normalise"):
    assert exchange.trace is None and exchange.trace_id == "1" * 32
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "requests"))])
"""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_loaded_where_no_traces_are_wanted(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", _NOTHING], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


_WITHOUT_THE_EXTRA = """
import sys
sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
from runners.tracing import Trace
assert Trace.begin("GET", {}) is Trace.begin("GET", {}) is None
"""


def test_without_the_extra_the_service_says_so_once_and_runs() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_EXTRA], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("the extra `otlp` is not installed") == 1
