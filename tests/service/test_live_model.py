"""`policy: model` of the real service, on a small model with the genuine one's layout: speech within a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect

from api.dictation import PAUSE_SECONDS
from benchmarks import live_text
from launch.server import Server
from tests.api.live_server import Session
from tests.golden import golden
from tests.service.conftest import recording
from tests.service.live_gauges import gauge, until

SENTENCE = "This is a sentence that is spoken while it is still being written, and nobody knows how it will end"
WORDS = SENTENCE.split()


@pytest.fixture(scope="module")
def tiny() -> Iterator[Server]:
    with Server(env={"MODEL_DIR": str(golden(3).dir)}) as running:
        running.wait_ready(timeout=120)
        yield running


async def test_words_are_spoken_before_their_sentence_ends_and_who_interrupts_is_heard(tiny: Server) -> None:
    address = tiny.url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
    async with connect(address) as socket:
        session = Session(socket)
        await session.until("session.created")
        who = {"ref_audio": recording(), "ref_text": "This is a short test."}
        await session.say("session.config", format="pcm", policy="model", seed=5, **who)
        await session.until("session.updated")
        for word in WORDS:
            await session.say("input.text", text=f"{word} ")
        await session.audio_has_begun()  # the sentence has no end yet
        assert gauge(tiny, "cosyserve_engine_requests") == 1
        await session.say("input.text", text="well.")
        await session.say("input.flush")
        done = await session.until("audio.done")
        assert done["text"] == " ".join([*WORDS, "well."])
        assert done["audio_ms"] == pytest.approx(len(session.sentences[0].audio) / 48, abs=60)
        assert (await session.until("utterance.done"))["finish_reason"] == "stop"
        for word in WORDS:
            await session.say("input.text", text=f"{word} ")
        await session.audio_has_begun()
        await session.say("response.cancel")
        assert (await session.until("utterance.done"))["finish_reason"] == "cancelled"
        assert until(lambda: gauge(tiny, "cosyserve_engine_requests") == 0, 30) < PAUSE_SECONDS
        for word in WORDS:
            await session.say("input.text", text=f"{word} ")
        await session.audio_has_begun()
        socket.transport.abort()
    assert await asyncio.to_thread(until, lambda: gauge(tiny, "cosyserve_engine_requests") == 0, 30) < PAUSE_SECONDS


async def test_it_is_heard_before_the_sentence_is_written(tiny: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_text, "SENTENCES", live_text.SENTENCES[:1])
    who = {"ref_audio": recording(), "ref_text": "This is a short test."}
    found = await live_text.measure(tiny.url.replace("http", "ws", 1), who, rate=8.0, repeats=1)
    (by_model,), (by_sentence,) = found["model"], found["sentence"]
    assert by_model.words < by_sentence.words == len(live_text.SENTENCES[0].split())
    assert by_model.seconds < by_sentence.seconds
    assert "words" in live_text.markdown(8.0, found)


async def test_the_embedded_voice_was_not_trained_for_it(server: Server) -> None:
    async with connect(server.url.replace("http", "ws", 1) + "/v1/audio/speech/stream") as socket:
        session = Session(socket)
        await session.say("session.config", policy="model")
        error = await session.until("error")
        assert (error["code"], error["param"], error["fatal"]) == ("unsupported_parameter", "policy", False)
