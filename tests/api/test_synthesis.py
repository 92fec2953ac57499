"""What a wish becomes: parts, blocks, times; and how a speech ends early."""

from __future__ import annotations

import asyncio
import threading
import time
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from api.errors import ApiError
from api.oip.formats import AudioTensor
from api.oip.inference import Inference
from api.oip.tensors import Tensor
from api.references import ReferenceVoices
from api.synthesis import Room, Speaker, Speech, SpeechWish, prepare
from api.telemetry import Recording
from runners.frames import Frame
from runners.request import SpeechRequest
from tests.api.oip_backend import HOP, HOPS, RATE, FakeBackend, all_samples, made
from tests.service.conftest import recording

LENGTH = HOP * HOPS / RATE  # seconds of each request of the fake engine


def _speaker(backend: FakeBackend) -> Speaker:
    return Speaker(backend, ReferenceVoices(backend))


async def _prepared(backend: FakeBackend, text: str, **fields) -> Speech:
    return await prepare(_speaker(backend), SpeechWish(text, **{"seed": 5, **fields}), await backend.describe())


async def _whole(speech: Speech) -> np.ndarray:
    entry = Recording("test")
    try:
        return await speech.whole(entry)
    finally:
        entry.finished("ok")


async def test_a_whole_answer_is_not_held_twice() -> None:
    hops = 4000
    speech = await _prepared(FakeBackend(hops=hops), "Hello.")
    tracemalloc.start()
    try:
        samples = await _whole(speech)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * samples.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(samples, all_samples(5, hops))
    assert speech.summary.finish_reason == "stop"


async def test_segments_of_one_manner_are_one_request_and_have_their_times() -> None:
    backend = FakeBackend()
    speech = await _prepared(backend, "One. / Two. / Three.")
    assert [segment.text for segment in speech.segments] == ["One.", "Two.", "Three."]
    await _whole(speech)
    assert [request.segments for request in backend.requests] == [("One.", "Two.", "Three.")]
    times = [(segment.text, segment.start_s, segment.end_s) for segment in speech.summary.segments]
    third = LENGTH / 3
    expected = [("One.", 0.0, third), ("Two.", third, 2 * third), ("Three.", 2 * third, LENGTH)]
    assert [(text, pytest.approx(start), pytest.approx(end)) for text, start, end in expected] == times


async def test_markup_becomes_parts_with_their_voices_and_pauses() -> None:
    backend = FakeBackend()
    ssml = (
        '<speak>One.<break time="250ms"/>Two. <voice name="other">Three.</voice>'
        '<prosody rate="200%" volume="+6dB">Four.</prosody></speak>'
    )
    speech = await _prepared(backend, ssml, input_type="ssml", speed=0.5)
    samples = await _whole(speech)
    assert [(request.voice, request.speed) for request in backend.requests] == [
        ("cosy", 0.5),
        ("cosy", 0.5),
        ("other", 0.5),
        ("cosy", 1.0),
    ]
    pause = round(0.25 * RATE)
    assert len(samples) == 4 * HOP * HOPS + pause
    assert not samples[HOP * HOPS : HOP * HOPS + pause].any()
    assert [segment.start_s for segment in speech.summary.segments] == pytest.approx(
        [0, LENGTH + 0.25, 2 * LENGTH + 0.25, 3 * LENGTH + 0.25]
    )
    # Only the very beginning is faded in.
    np.testing.assert_array_equal(samples[HOP * HOPS + pause :][:HOP], made(6, 0))
    assert not np.array_equal(samples[:HOP], made(5, 0))
    loud, plain = samples[-HOP * HOPS :].std(), samples[HOP * HOPS + pause : 2 * HOP * HOPS + pause].std()
    assert loud / plain == pytest.approx(2, rel=0.05)
    assert len({request.seed for request in backend.requests}) == 4
    assert speech.summary.speech_tokens == 8


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": "<speak>One", "input_type": "ssml"}, "invalid_ssml"),
        ({"text": '<speak><prosody rate="300%">One.</prosody></speak>', "input_type": "ssml", "speed": 2.0}, None),
        ({"text": '<speak><voice name="nobody">One.</voice></speak>', "input_type": "ssml"}, "voice_not_found"),
    ],
)
async def test_markup_that_cannot_be_spoken_reaches_no_engine(fields: dict, code: str | None) -> None:
    backend = FakeBackend()
    with pytest.raises(Exception) as caught:
        await _prepared(backend, **fields)
    assert getattr(caught.value, "code", None) == (code or "invalid_value")
    assert not backend.requests


@pytest.mark.parametrize(("rate", "pitch"), [(8_000, 1.0), (48_000, 1.0), (None, 1.5), (44_100, 0.7)])
async def test_rate_and_pitch_keep_the_duration(rate: int | None, pitch: float) -> None:
    speech = await _prepared(FakeBackend(hops=100), "Hello.", sample_rate=rate, pitch=pitch)
    samples = await _whole(speech)
    assert len(samples) == pytest.approx(100 * HOP * speech.sample_rate / RATE, abs=1)
    assert speech.sample_rate == (rate or RATE)


async def test_volume_is_a_gain_and_fifty_is_none() -> None:
    plain, half, silent = [
        await _whole(await _prepared(FakeBackend(), "Hello.", volume=volume)) for volume in (50.0, 25.0, 0.0)
    ]
    np.testing.assert_allclose(half, plain / 2, rtol=1e-6)
    assert not silent.any()


async def test_the_next_part_is_asked_for_while_the_last_one_is_unread() -> None:
    backend = FakeBackend()
    speech = await _prepared(backend, '<speak>One.<break time="1s"/>Two.</speak>', input_type="ssml")
    entry = Recording("test")
    async with aclosing(speech.blocks(entry)) as blocks:
        await anext(blocks)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(backend.requests) == 2
    entry.finished("ok")


async def test_closing_the_blocks_ends_the_request() -> None:
    backend = FakeBackend(hold=True)
    speech = await _prepared(backend, "Hello.")
    entry = Recording("test")
    blocks = speech.blocks(entry)
    await anext(blocks)
    assert backend.running == 1
    await blocks.aclose()
    assert backend.running == 0
    entry.finished("cancelled")


async def test_a_deadline_ends_a_speech_that_takes_too_long() -> None:
    backend = FakeBackend(hold=True)
    speech = await _prepared(backend, "Hello.", timeout_s=0.1)
    began = time.monotonic()
    with pytest.raises(ApiError) as caught:
        await _whole(speech)
    assert time.monotonic() - began < 5
    assert (caught.value.status, caught.value.code) == (504, "deadline_exceeded")
    assert backend.running == 0


async def test_a_deadline_holds_for_the_preparation_too() -> None:
    class Slow(FakeBackend):
        async def encode(self, samples: bytes, sample_rate: int):
            await asyncio.Event().wait()

    with pytest.raises(ApiError) as caught:
        await _prepared(Slow(), "Hello.", timeout_s=0.1, ref_audio=recording(1.0))
    assert caught.value.code == "deadline_exceeded"


async def test_a_failure_of_a_later_part_comes_after_what_was_made() -> None:
    class Failing(FakeBackend):
        async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
            self.fail_after = 1 if self.requests else None
            async for frame in super().stream(request):
                yield frame

    backend = Failing()
    speech = await _prepared(backend, '<speak>One.<break time="1s"/>Two.</speak>', input_type="ssml")
    entry, heard = Recording("test"), 0
    with pytest.raises(type(backend.error)):
        async for block in speech.blocks(entry):
            heard += len(block)
    assert heard == HOPS * HOP + RATE + HOP
    entry.finished("engine_error")


async def test_what_did_not_fit_leaves_its_room_to_others() -> None:
    room, entry = Room(HOP * HOPS), Recording("test")
    with pytest.raises(ApiError, match="over 1,440 samples"):
        await (await _prepared(FakeBackend(hops=HOPS + 1), "Hello.")).whole(entry, room)
    assert len(await (await _prepared(FakeBackend(), "Hello.")).whole(entry, room)) == HOP * HOPS
    with pytest.raises(ApiError) as refused:
        await (await _prepared(FakeBackend(), "Hello.")).whole(entry, room)
    assert refused.value.code == "answer_too_long"
    entry.finished("ok")


@pytest.mark.parametrize(("audio_format", "in_a_thread"), [("flac", True), ("mp3_base64", True), ("float32", False)])
async def test_hops_are_coded_where_they_hold_no_stream_up(
    monkeypatch: pytest.MonkeyPatch, audio_format: str, in_a_thread: bool
) -> None:
    threads = set()
    feed = AudioTensor.feed

    def noted(self: AudioTensor, samples: np.ndarray) -> Tensor | None:
        threads.add(threading.get_ident())
        return feed(self, samples)

    monkeypatch.setattr(AudioTensor, "feed", noted)
    entry = Recording("test")
    hops = Inference(_speaker(FakeBackend())).stream(SpeechWish("Hello."), AudioTensor(audio_format, RATE), entry)
    assert [hop async for hop in hops]
    assert (threading.get_ident() not in threads) == in_a_thread
    entry.finished("ok")
