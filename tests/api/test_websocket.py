"""The session protocol of `/v1/audio/speech/stream` over a real socket."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from typing import Any

import av
import numpy as np
import pytest
from prometheus_client import REGISTRY
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from api.live_session import Limits
from models.conditioning import Conditioning
from runners.frames import Frame, FrameKind
from runners.request import SpeechRequest
from tests.api.live_server import Endless, Session, comes_true, live_server
from tests.api.oip_backend import RATE, FakeBackend, all_samples
from tests.service.conftest import recording

TEXT = 'Dr. Lee paid $3.50 at 9:05 p.m. on Monday. "Really?" she asked. See https://a.b/c.d?e=1. 你好！再见。 The end'


def decoded(audio: bytes, audio_format: str) -> np.ndarray:
    """`[L]`, full scale 1.0. One file: a second one's header would be noise, or an error."""
    if audio_format == "pcm":
        return np.frombuffer(audio, "<i2") / 32768
    with av.open(io.BytesIO(audio)) as file:
        return np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)]) / 32768


class Paced(FakeBackend):
    """Speaks at twice real time, in blocks that last longer than the next sentence's first one."""

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        for _ in range(6):
            await asyncio.sleep(0.05)
            yield Frame(FrameKind.AUDIO, np.zeros(RATE // 10, np.float32).tobytes())
        yield Frame.of(FrameKind.SEGMENT, end=6 * RATE // 10)
        yield Frame.of(FrameKind.END, finish_reason="stop", text_tokens=1, speech_tokens=2)


class Deaf(FakeBackend):
    """Its encoder never answers."""

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        await asyncio.Event().wait()
        raise AssertionError


async def speak(session: Session, text: str, portion: int = 7) -> None:
    for start in range(0, len(text), portion):
        await session.say("input.text", text=text[start : start + portion])
    await session.say("input.flush")
    await session.until("utterance.done")


@pytest.mark.parametrize("audio_format", ["wav", "flac", "pcm"])
async def test_every_sentence_is_one_file_and_all_text_is_spoken_once(audio_format: str) -> None:
    async with live_server(FakeBackend()) as server, server.session() as session:
        await session.say("session.config", format=audio_format, policy="clause", timestamp_granularities=["segment"])
        assert (await session.until("session.updated"))["format"] == audio_format
        await speak(session, TEXT)
        await speak(session, "One more.")
        await session.say("input.done")
        done = await session.until("session.done")
        assert await session.until_closed() == 1000
    starts = [sentence.start for sentence in session.sentences]
    assert "".join(start["text"] for start in starts) == TEXT + "One more."
    assert [(start["utterance_index"], start["sentence_index"]) for start in starts] == [
        *((0, index) for index in range(len(starts) - 1)),
        (1, 0),
    ]
    assert len(starts) == done["sentences"] == 7
    assert done["utterances"] == 2
    assert done["audio_ms"] == 7 * 60
    assert sum(event["type"] == "audio.timestamps" for event in session.events) == 7
    for sentence in session.sentences:
        expected = all_samples(sentence.start["seed"])
        heard = decoded(sentence.audio, audio_format)
        np.testing.assert_allclose(heard, expected, atol=1e-4)
        assert sentence.start["sample_rate"] == 24_000
        assert sentence.done["finish_reason"] == "stop"


@pytest.mark.parametrize("flushed", [False, True])
async def test_the_next_sentence_is_begun_ahead_and_no_other(flushed: bool) -> None:
    backend = FakeBackend(hold=True)
    async with live_server(backend) as server, server.session() as session:
        for text in ("One. ", "Two. ", "Three. ", "Four. "):
            await session.say("input.text", text=text)
            if flushed:
                await session.say("input.flush")
        await comes_true(lambda: len(backend.requests) == 2)
        await session.audio_has_begun()
        await asyncio.sleep(0.1)
        assert len(backend.requests) == 2
        assert len(session.sentences) == 1
    await comes_true(lambda: backend.running == 0)


async def test_barge_in_stops_the_engine_and_the_session_goes_on() -> None:
    backend = FakeBackend(hold=True)
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", seed=3)
        await session.say("input.text", text="One. Two. Three. And a half sentence")
        await session.audio_has_begun()
        await session.say("response.cancel")
        done = await session.until("utterance.done")
        assert (done["utterance_index"], done["finish_reason"]) == (0, "cancelled")
        assert session.sentences[-1].done["finish_reason"] == "cancelled"
        await comes_true(lambda: backend.running == 0)
        backend.hold = False
        await speak(session, "Something else.")
        assert [sentence.start["text"] for sentence in session.sentences] == ["One.", "Something else."]
        assert session.sentences[-1].start["utterance_index"] == 1
        heard = np.frombuffer(session.sentences[-1].audio, "<i2") / 32768
        np.testing.assert_allclose(heard, all_samples(3), atol=1e-4)


async def test_barge_in_works_at_any_moment() -> None:
    backend = Endless()
    async with live_server(backend) as server, server.session(compression=None) as session:
        await session.say("session.config", format="pcm")
        for round in range(40):
            await session.say("input.text", text="This never ends. Nor does this. ")
            await session.audio_has_begun()
            await asyncio.sleep(round / 4000)
            await session.say("response.cancel")
            await session.until("utterance.done")
            await comes_true(lambda: backend.running == 0, 1)
        assert len(session.sentences) == 40


async def test_nothing_is_heard_after_a_fatal_error() -> None:
    backend = Endless()
    async with live_server(backend) as server, server.session(compression=None) as session:
        await session.say("session.config", format="pcm")
        await session.say("input.text", text="This never ends. ")
        await session.audio_has_begun()
        await session.socket.send(b"audio")
        assert (await session.until("error"))["code"] == "invalid_type"
        assert await session.until_closed() == 1003
        with pytest.raises(ConnectionClosed):
            await session.socket.recv()
        assert backend.running == 0


@pytest.mark.parametrize("leave", ["close", "session.close", "abort"])
async def test_who_leaves_frees_the_engine(leave: str) -> None:
    backend = FakeBackend(hold=True)
    async with live_server(backend) as server, server.session() as session:
        await session.say("input.text", text="One. Two. Three. ")
        await session.audio_has_begun()
        if leave == "session.close":
            await session.say("session.close")
            await session.until("session.done")
            assert await session.until_closed() == 1000
        elif leave == "abort":
            session.socket.transport.abort()
        else:
            await session.socket.close()
        await comes_true(lambda: backend.running == 0, 1)
        assert len(backend.requests) <= 2


async def test_a_slow_reader_is_bounded_and_holds_nobody_up() -> None:
    backend = Endless()
    async with (
        live_server(backend, Limits(send_s=0.8)) as server,
        server.session(max_queue=1, compression=None) as slow,
    ):
        await slow.say("session.config", format="pcm")
        await slow.until("session.updated")
        await slow.say("input.text", text="Endless. ")
        await asyncio.sleep(0.5)
        made = backend.made
        assert 0 < made < 500  # 48 kB of PCM each: what sockets and queues hold
        backend.seconds = 1
        async with server.session() as other:
            await speak(other, "Quick.")
        assert backend.made - made <= 1 + 8
        await comes_true(lambda: backend.running == 0)  # it has stalled for too long
        slow.socket.transport.abort()  # rather than wait for an answer to its goodbye


async def test_bad_messages_are_told_and_harm_nothing() -> None:
    bad: list[tuple[Any, str, str | None]] = [
        ("{", "invalid_json", None),
        ("[]", "invalid_type", None),
        ({"type": "input.txt"}, "invalid_value", "type"),
        ({"no": "type"}, "invalid_value", "type"),
        ({"type": ["input.text"]}, "invalid_value", "type"),
        ({"type": "input.text"}, "missing_parameter", "text"),
        ({"type": "input.text", "text": 5}, "invalid_type", "text"),
        ({"type": "input.text", "text": "a", "words": "b"}, "unknown_parameter", "words"),
        ({"type": "input.text", "text": "a" * 20_001}, "input_too_long", "text"),
        ({"type": "input.flush", "now": True}, "unknown_parameter", "now"),
        ({"type": "session.config", "voice": "nobody"}, "voice_not_found", "voice"),
        ({"type": "session.config", "format": "gif"}, "unsupported_format", "format"),
        ({"type": "session.config", "policy": "word"}, "invalid_value", "policy"),
        ({"type": "session.config", "sample_rate": 1}, "invalid_value", "sample_rate"),
        ({"type": "session.config", "speed": 9}, "invalid_value", "speed"),
        ({"type": "session.config", "input": "hello"}, "invalid_value", "input"),
        ({"type": "session.config", "input_type": "ssml"}, "unsupported_parameter", "input_type"),
        ({"type": "session.config", "model": "gpt"}, "model_not_found", "model"),
        ({"type": "session.config", "instructions": "Whisper."}, "unsupported_parameter", "instructions"),
        ({"type": "session.config", "timestamp_granularities": ["word"]}, "unsupported_parameter", None),
    ]
    async with live_server(FakeBackend()) as server, server.session() as session:
        for message, code, param in bad:
            await session.socket.send(message if isinstance(message, str) else json.dumps(message))
            error = await session.until("error")
            assert (error["code"], error["fatal"]) == (code, False), message
            assert param in (None, error["param"]), message
            assert error["message"]
        await session.say("session.config")
        await session.until("session.updated")
        await speak(session, "Still here.")
        assert [sentence.start["text"] for sentence in session.sentences] == ["Still here."]


async def test_text_has_a_limit_for_the_session_and_halves_of_a_pair_are_one() -> None:
    async with live_server(FakeBackend(), Limits(session_characters=12)) as server, server.session() as session:
        for half in ("Hi \ud83d", "\ude00. "):
            await session.say("input.text", text=half)
        await session.say("input.text", text="One too many.")
        assert (await session.until("error"))["code"] == "input_too_long"
        await session.say("input.done")
        await session.until("session.done")
        assert [sentence.start["text"] for sentence in session.sentences] == ["Hi 😀."]


async def test_a_failure_ends_its_utterance_only() -> None:
    backend = FakeBackend(fail_after=1)
    async with live_server(backend) as server, server.session() as session:
        await speak(session, "One. Two. Three.", 100)
        (sentence,) = session.sentences
        assert sentence.done["finish_reason"] == "error"
        kinds = [event["type"] for event in session.events]
        assert kinds[-3:] == ["audio.done", "error", "utterance.done"]
        assert session.events[-2]["code"] == "engine_error"
        assert session.events[-1]["finish_reason"] == "error"
        assert len(backend.requests) <= 2
        backend.fail_after = None
        await speak(session, "Four.")
        assert session.events[-1]["finish_reason"] == "stop"
    await comes_true(lambda: backend.running == 0)


@pytest.mark.parametrize(
    ("limits", "message", "code", "close"),
    [
        (Limits(), b"audio", "invalid_type", 1003),
        (Limits(message_bytes=50), json.dumps({"type": "input.text", "text": "a" * 60}), "payload_too_large", 1009),
        (Limits(idle_s=0.1), None, "idle_timeout", 1008),
    ],
)
async def test_some_problems_end_the_session(
    limits: Limits, message: str | bytes | None, code: str, close: int
) -> None:
    async with live_server(FakeBackend(), limits) as server, server.session() as session:
        if message is not None:
            await session.socket.send(message)
        error = await session.until("error")
        assert (error["code"], error["fatal"]) == (code, True)
        assert await session.until_closed() == close


async def test_a_model_that_loads_is_to_be_tried_again() -> None:
    async with (
        live_server(FakeBackend(loaded=False)) as server,
        connect(f"{server.url}/v1/audio/speech/stream") as socket,
    ):
        assert json.loads(await socket.recv())["code"] == "loading"
        await socket.wait_closed()
        assert socket.close_code == 1013


async def test_the_drain_lets_the_sentence_end_and_takes_no_other() -> None:
    backend = Endless(seconds=300)
    async with live_server(backend) as server, server.session() as session, server.session() as silent:
        await session.say("session.config", format="pcm")
        await session.say("input.text", text="One. Two. Three. ")
        await session.audio_has_begun()
        server.app.state.draining.set()
        assert (await silent.until("error"))["code"] == "draining"
        assert await silent.until_closed() == 1012
        error = await session.until("error")
        assert (error["code"], error["fatal"]) == ("draining", True)
        assert await session.until_closed() == 1012
        assert [sentence.done["finish_reason"] for sentence in session.sentences] == ["stop"]
        assert len(session.sentences[0].audio) == 300 * 48_000
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{server.url}/v1/audio/speech/stream")
        assert refused.value.response.status_code == 503
        assert json.loads(refused.value.response.body)["error"]["code"] == "draining"


async def test_an_interruption_ends_every_utterance_that_was_queued() -> None:
    async with live_server(FakeBackend(hold=True)) as server, server.session() as session:
        for text in ("One. ", "Two. ", "Three. "):
            await session.say("input.text", text=text)
            await session.say("input.flush")
        await session.say("input.text", text="Half a")
        await session.audio_has_begun()
        await session.say("response.cancel")
        await session.say("input.done")
        assert (await session.until("session.done"))["utterances"] == 4
        ends = [event for event in session.events if event["type"] == "utterance.done"]
        assert [end["utterance_index"] for end in ends] == [0, 1, 2, 3]
        assert {end["finish_reason"] for end in ends} == {"cancelled"}


async def test_a_sentence_that_waits_for_its_turn_is_no_discontinuous_stream() -> None:
    def counted() -> list[float]:
        names = ("cosyserve_streams_total", "cosyserve_discontinuous_streams_total")
        return [REGISTRY.get_sample_value(name, {"route": "speech_stream"}) or 0.0 for name in names]

    before = counted()
    async with live_server(Paced()) as server, server.session() as session:
        await session.say("input.text", text="One. Two. Three. ")
        await session.say("input.done")
        await session.until("session.done")
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [3, 0]


async def test_a_later_configuration_keeps_what_it_leaves_out() -> None:
    backend = FakeBackend()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", seed=3, ref_audio=recording(1.0), ref_text="Said.")
        await session.say("session.config", policy="clause")
        await speak(session, "One.")
        await session.say("session.config", voice="other", response_format="flac")
        await speak(session, "Two.")
        updated = [event for event in session.events if event["type"] == "session.updated"]
    first, second = backend.requests
    assert (first.seed, first.prompt_text, first.conditioning is not None) == (3, "Said.", True)
    assert (second.seed, second.prompt_text, second.voice, second.conditioning) == (3, None, "other", None)
    assert [(event["format"], event["policy"]) for event in updated] == [
        ("pcm", "sentence"),
        ("pcm", "clause"),
        ("flac", "clause"),
    ]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"policy": "word"}, "invalid_value", "policy"),
        ({"policy": "model"}, "unsupported_parameter", "policy"),
        ({"fromat": "pcm"}, "unknown_parameter", "fromat"),
        ({"ref_audio": "data:audio/wav;base64,AAAA"}, "ref_audio_invalid", "ref_audio"),
    ],
)
async def test_no_text_is_spoken_after_a_refused_configuration(fields: dict[str, Any], code: str, param: str) -> None:
    backend = FakeBackend()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", **fields)
        for text in ("One. ", "Two. "):
            await session.say("input.text", text=text)
        await session.say("input.done")
        done = await session.until("session.done")
        assert await session.until_closed() == 1000
    errors = [event for event in session.events if event["type"] == "error"]
    assert [(error["code"], error["param"], error["fatal"]) for error in errors] == [(code, param, False)] * 3
    assert all(errors[0]["message"] in error["message"] for error in errors)
    assert all("session.config was refused" in error["message"] for error in errors[1:])
    assert (done["sentences"], done["characters"], backend.requests) == (0, 0, [])


async def test_a_refused_configuration_holds_up_only_the_text_after_it() -> None:
    async with live_server(FakeBackend()) as server, server.session() as session:
        await session.say("session.config", format="pcm", seed=3)
        await session.say("input.text", text="Before")
        await session.say("session.config", format="flac", voice="nobody")
        await session.say("input.text", text=" the refusal.")
        await session.say("session.config", seed=4)
        await session.until("session.updated")
        await session.until("session.updated")
        await speak(session, " After.")
    assert sum(event["type"] == "error" for event in session.events) == 2
    (sentence,) = session.sentences
    assert (sentence.start["text"], sentence.start["format"], sentence.start["seed"]) == ("Before After.", "pcm", 4)


async def test_a_bug_leaves_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    backend = FakeBackend(fail_after=0, error=ZeroDivisionError("a bug"))
    async with live_server(backend) as server, server.session() as session:
        await speak(session, "One.")
        assert [event["code"] for event in session.events if event["type"] == "error"] == ["internal_error"]
    assert "ZeroDivisionError: a bug" in caplog.text


async def test_a_message_that_waits_for_what_hangs_sees_the_drain() -> None:
    async with live_server(Deaf()) as server, server.session() as session:
        await session.say("session.config", ref_audio=recording(1.0))
        await asyncio.sleep(0.1)
        server.app.state.draining.set()
        error = await session.until("error")
        assert (error["code"], error["fatal"]) == ("draining", True)
        assert await session.until_closed() == 1012
