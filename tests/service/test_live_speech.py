"""`/v1/audio/speech/stream` of the real service: text in, speech out, and nothing left behind by who leaves."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.client import connect

from launch.server import Server
from tests.api.live_server import Session
from tests.service.live_gauges import gauge, until

LONG = "This sentence is long enough that nobody will hear all of it before somebody interrupts. "


def _address(server: Server) -> str:
    return server.url.replace("http", "ws", 1) + "/v1/audio/speech/stream"


async def test_a_conversation(server: Server) -> None:
    async with connect(_address(server)) as socket:
        session = Session(socket)
        created = await session.until("session.created")
        assert (created["voice"], created["sample_rate"]) == ("cosy", 24_000)
        await session.say("session.config", format="pcm", seed=5, timestamp_granularities=["segment"])
        for text in ("Good mor", "ning. How ", "are "):
            await session.say("input.text", text=text)
        await session.audio_has_begun()  # of the first sentence, before the second one is complete
        await session.say("input.text", text="you today? " + LONG * 8)
        while len(session.sentences) < 3:
            await session.until("audio.start")
        await session.say("response.cancel")
        assert (await session.until("utterance.done"))["finish_reason"] == "cancelled"
        until(lambda: gauge(server, "cosyserve_engine_requests") == 0, 30)
        await session.say("input.text", text="Good night.")
        await session.say("input.done")
        done = await session.until("session.done")
    texts = [sentence.start["text"] for sentence in session.sentences]
    assert texts == ["Good morning.", " How are you today?", " " + LONG.strip(), "Good night."]
    assert done["sentences"] == 3
    for sentence in (session.sentences[0], session.sentences[1], session.sentences[3]):
        assert sentence.done["finish_reason"] == "stop"
        assert len(sentence.audio) / 48 == pytest.approx(sentence.done["audio_ms"], abs=60)


async def test_a_session_that_is_dropped_frees_the_engine(server: Server) -> None:
    async with connect(_address(server)) as socket:
        session = Session(socket)
        await session.say("input.text", text=LONG * 8)
        await session.audio_has_begun()
        assert gauge(server, "cosyserve_engine_requests") > 0
        socket.transport.abort()
    seconds = await asyncio.to_thread(until, lambda: gauge(server, "cosyserve_engine_requests") == 0, 30)
    assert seconds < 10
    assert gauge(server, "cosyserve_active_streams") == 0
