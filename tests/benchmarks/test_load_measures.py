"""The load generator against servers that follow a script: what it measures is what the script says."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from audio.encode import wav_header
from benchmarks.loading.client import Speech, Target, speak
from benchmarks.loading.levels import Extent, arrivals
from benchmarks.loading.texts import TEXTS
from tests.benchmarks.scripted_speech import RATE, Answer, Result, run_load, scripted

FULL = Answer(status=429, headers={"Retry-After": "1"}, body=b'{"error": {"message": "at capacity"}}')
# How much later than scripted a busy machine may be.
SLACK = 0.35


@pytest.fixture
def load(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return partial(run_load, tmp_path, capsys)


def test_what_the_script_says_is_measured(load) -> None:
    # First audio after 0.3 s; then pauses of 0.1, 0.5, 0.1: the second one meets a listener with 0.2 s left.
    script = Answer([(0.3, 0.2), (0.1, 0.1), (0.5, 0.4), (0.1, 0.3)])
    with scripted(script) as server:
        result = load(server.url, "--concurrency", "2", "--requests", "6")
    (level,) = result.levels
    assert result.status == 0
    assert (level["requests"], level["ok"], level["failures"]) == (6, 6, [])
    assert level["audio_s"] == pytest.approx({"mean": 1.0, "p50": 1.0, "p95": 1.0, "p99": 1.0, "max": 1.0})
    assert 0.3 <= level["ttfa_s"]["p50"] <= level["ttfa_s"]["max"] < 0.3 + SLACK
    assert 0.1 - 0.05 <= level["gap_s"]["p50"] < 0.1 + SLACK
    assert 0.5 - 0.05 <= level["gap_s"]["p95"] <= level["gap_s"]["max"] < 0.5 + SLACK
    assert 1.0 <= level["rtf"]["p50"] < 1.0 + 2 * SLACK
    # Three rounds of two seconds of audio in a second each.
    assert 2.0 / (1 + 2 * SLACK) < level["audio_s_per_s"] <= 2.0
    assert 0.3 - 0.05 <= level["starved_s"]["p50"] < 0.3 + SLACK
    assert level["continuity_at_once"] == level["continuity_in_total"] == 0.0
    assert not level["rate_assumed"]
    assert "| concurrency 2 |" in result.out
    assert "concurrency 2: 6 done, 0 failed" in result.err


def test_what_comes_ahead_of_time_never_starves(load) -> None:
    with scripted(Answer([(0.05, 1.0), (0.2, 1.0), (0.2, 1.0)])) as server:
        (level,) = load(server.url, "--concurrency", "4", "--requests", "4").levels
    assert level["continuity_at_once"] == level["continuity_in_total"] == 1.0
    assert level["starved_s"]["max"] == 0.0
    assert level["rtf"]["max"] < 0.5


HEADER = wav_header(RATE, None)
DELTA = b'data: {"type": "speech.audio.delta", "audio": "' + base64.b64encode(bytes(RATE)) + b'"}\n\n'


@pytest.mark.parametrize(
    ("content_type", "begins", "goes_on"),
    [
        ("audio/wav", HEADER, bytes(RATE)),
        ("application/octet-stream", HEADER[:3], HEADER[3:] + bytes(RATE)),
        ("text/event-stream", b'data: {"type": "speech.audio.delta", "audio": ""}\n\n', DELTA),
    ],
)
def test_first_audio_is_no_header(load, content_type: str, begins: bytes, goes_on: bytes) -> None:
    with scripted(
        Answer([(0.0, begins), (0.3, goes_on)], content_type, headers={"X-Sample-Rate": str(RATE)})
    ) as server:
        (level,) = load(server.url, "--concurrency", "1", "--requests", "2").levels
    assert level["ok"] == 2
    assert 0.3 <= level["ttfa_s"]["p50"] < 0.3 + SLACK
    assert level["gap_s"] is None
    assert level["audio_s"]["mean"] == pytest.approx(0.5)
    assert not level["rate_assumed"]


def test_every_level_asks_for_the_same_texts_in_the_same_order(load) -> None:
    with scripted() as server:
        result = load(server.url, "--concurrency", "1,3", "--rate", "200", "--requests", "15")
    assert [level["ok"] for level in result.levels] == [15, 15, 15]
    spoken = [body["input"] for body in server.bodies]
    assert spoken[0] == TEXTS[0]  # the warm-up
    expected = [TEXTS[number % len(TEXTS)] for number in range(15)]
    assert spoken[1:16] == expected
    assert sorted(spoken[16:31]) == sorted(spoken[31:]) == sorted(expected)  # they overtake each other on the way
    assert all(body == {**body, "response_format": "pcm", "stream": True} for body in server.bodies)


def test_closed_loop_keeps_so_many_clients_busy_and_stops_by_itself(load) -> None:
    with scripted(Answer([(0.1, 0.2)])) as server:
        (level,) = load(server.url, "--concurrency", "3", "--duration", "1").levels
    assert server.most_at_once == 3
    assert 1.0 <= level["wall_s"] < 1.1 + SLACK
    assert 3 * 3 <= level["ok"] <= 3 * 10


def test_open_loop_keeps_its_arrivals_whatever_the_answers_take(load) -> None:
    with scripted(Answer([(0.6, 0.2)])) as server:
        (level,) = load(server.url, "--rate", "10", "--requests", "12", "--seed", "7", "--warm-up", "0").levels
    due = list(arrivals(10, Extent(requests=12), seed=7))
    assert level["ok"] == 12
    assert server.most_at_once > 3
    assert [at - server.times[0] for at in server.times] == pytest.approx([at - due[0] for at in due], abs=SLACK)


def test_times_count_from_when_a_request_was_due() -> None:
    async def late(target: Target) -> Speech:
        async with target.session() as session:
            return await speak(session, target, "Hello.", due=time.monotonic() - 1.0)

    with scripted(Answer([(0.1, 0.2)])) as server:
        speech = asyncio.run(late(Target(f"{server.url}/v1/audio/speech")))
    assert speech.failure is None
    assert 1.1 <= speech.arrivals[0].at <= speech.seconds < 1.1 + SLACK


HALF = [(0.0, 0.2), (0.05, 0.2)]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (FULL, "http_429", "at capacity"),
        (Answer(status=503, body=b"<h1>Busy</h1>"), "http_503", "<h1>Busy</h1>"),
        (Answer(status=422, body=b'{"detail": "no such voice"}'), "http_422", "no such voice"),
        (Answer(status=307, headers={"Location": "/"}, pieces=()), "http_307", "Temporary Redirect"),
        (Answer(content_type="application/json", body=b'{"error": "no model"}'), "not_audio", "no model"),
        (Answer(content_type="audio/mpeg", body=b"ID3"), "bad_audio", "audio/mpeg"),
        (Answer(pieces=()), "no_audio", "without any audio"),
        (Answer(pieces=HALF, breaks=True), "broken", ""),
        (Answer(pieces=HALF, headers={"Content-Length": "9999"}, breaks=True), "broken", ""),
        (Answer(content_type="text/event-stream", body=b'data: {"error": "cut"}\n\n'), "error_event", "cut"),
    ],
)
def test_failures_are_counted_by_kind(load, answer: Answer, kind: str, message: str) -> None:
    with scripted(Answer(), answer) as server:
        result = load(server.url, "--concurrency", "1", "--requests", "4")
    (level,) = result.levels
    assert (result.status, level["ok"]) == (0, 2)
    ((failure),) = level["failures"]
    assert (failure["kind"], failure["count"]) == (kind, 2)
    assert failure["example"]
    assert message in failure["example"]
    assert f"2 x `{kind}`, such as: {failure['example']}" in result.out
    assert level["refusals"] == (2 if kind in ("http_429", "http_503") else 0)
    assert level["continuity_at_once"] == (0.5 if kind == "broken" else 1.0)


def test_a_server_that_hangs_is_left_after_the_timeout(load) -> None:
    began = time.monotonic()
    with scripted(Answer([(0.0, 0.1), (30.0, 0.1)])) as server:
        result = load(server.url, "--concurrency", "2,4", "--duration", "1", "--timeout", "0.5")
    assert time.monotonic() - began < 5
    assert result.status == 1
    assert set(result.kinds()) == {"timeout"}
    assert len(result.levels) == 1
    assert "not measured, as no request had succeeded before: concurrency 4" in result.out


def test_a_server_that_is_not_there_is_counted(load) -> None:
    result = load("http://127.0.0.1:9", "--concurrency", "2", "--requests", "4")
    assert result.status == 1
    assert result.kinds() == {"connect": 4}


def test_a_server_that_speaks_no_http_is_counted(load) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = server.sockets[0].getsockname()[1]
        result = load(f"http://127.0.0.1:{port}", "--concurrency", "1", "--requests", "2")
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
    assert result.status == 1
    assert sum(result.kinds().values()) == 2
    assert set(result.kinds()) <= {"protocol", "broken"}


def test_a_refusal_is_waited_for_only_on_request(load) -> None:
    with scripted(FULL, Answer([(0.1, 0.5)])) as server:
        result = load(server.url, "--concurrency", "1", "--requests", "2", "--retry", "--warm-up", "0")
    (level,) = result.levels
    assert (level["ok"], level["refusals"], level["failures"]) == (2, 2, [])
    assert 1.1 <= level["ttfa_s"]["p50"] < 1.1 + 2 * SLACK  # from the first attempt
    assert [body["input"] for body in server.bodies] == [TEXTS[0], TEXTS[0], TEXTS[1], TEXTS[1]]
    assert "2 refusals" in result.out


def test_no_refusal_is_waited_for_beyond_the_timeout(load) -> None:
    began = time.monotonic()
    with scripted(Answer(status=503, headers={"Retry-After": "60"}, body=b"loading")) as server:
        result = load(server.url, "--concurrency", "1", "--requests", "1", "--retry", "--timeout", "20")
    assert time.monotonic() - began < 10
    assert result.kinds() == {"http_503": 1}
