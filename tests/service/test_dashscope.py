"""The unmodified DashScope SDK, pointed at the real service."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import av
import dashscope
import numpy as np
import pytest
from dashscope.audio.tts_v2 import AudioFormat, ResultCallback, SpeechSynthesizer
from dashscope.common.error import RequestFailure

from launch.server import Server
from tests.service.live_gauges import gauge, until

TEXT = "The boat is late. It came at 9:05 a.m. yesterday."


@pytest.fixture(scope="module", autouse=True)
def pointed_at(server: Server) -> Iterator[None]:
    before = dashscope.base_websocket_api_url, dashscope.api_key
    dashscope.base_websocket_api_url = server.url.replace("http", "ws", 1) + "/api-ws/v1/inference"
    dashscope.api_key = "none"
    yield
    dashscope.base_websocket_api_url, dashscope.api_key = before


def synthesizer(**options: Any) -> SpeechSynthesizer:
    return SpeechSynthesizer(**{"model": "cosyvoice-v2", "voice": "cosy", "seed": 7, **options})


def decoded(audio: bytes) -> tuple[np.ndarray, int]:
    with av.open(io.BytesIO(audio)) as file:
        frames = list(file.decode(audio=0))
    samples = [np.atleast_2d(frame.to_ndarray())[0] for frame in frames]
    return np.concatenate([s / 32768 if s.dtype == np.int16 else s for s in samples]), frames[0].sample_rate


class Kept(ResultCallback):
    def __init__(self) -> None:
        self.audio = b""
        self.events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.heard, self.complete = threading.Event(), threading.Event()

    def on_data(self, data: bytes) -> None:
        self.audio += data
        self.heard.set()

    def on_event(self, message: str) -> None:
        self.events.append(json.loads(message)["payload"]["output"])

    def on_error(self, message: str) -> None:
        self.errors.append(json.loads(message)["header"]["error_code"])

    def on_complete(self) -> None:
        self.complete.set()


@pytest.mark.parametrize(
    ("audio_format", "rate"),
    [
        (AudioFormat.DEFAULT, 48_000),  # MP3 is coded at 44.1 or 48 kHz
        (AudioFormat.WAV_16000HZ_MONO_16BIT, 16_000),
        (AudioFormat.PCM_8000HZ_MONO_16BIT, 8_000),
        (AudioFormat.OGG_OPUS_24KHZ_MONO_32KBPS, 48_000),  # Opus always plays at 48 kHz
    ],
)
def test_a_call_brings_one_file_of_the_format(audio_format: AudioFormat, rate: int) -> None:
    audio = synthesizer(format=audio_format).call(TEXT)
    samples, found = (np.frombuffer(audio, "<i2") / 32768, rate) if audio_format.format == "pcm" else decoded(audio)
    assert found == rate
    assert 2.5 < len(samples) / rate < 6
    assert 0.02 < np.sqrt(np.mean(samples**2)) < 0.4


def test_text_streams_in_while_audio_streams_out() -> None:
    kept = Kept()
    task = synthesizer(format=AudioFormat.PCM_24000HZ_MONO_16BIT, callback=kept)
    task.streaming_call("The first sen")
    task.streaming_call("tence is here. And the ")
    assert kept.heard.wait(20), "the first sentence is not spoken before the text is complete"
    task.streaming_call("second one")
    task.streaming_flush()
    task.streaming_call("The third.")
    task.streaming_complete()
    assert kept.complete.wait(5)
    said = [event["original_text"] for event in kept.events if event["type"] == "sentence-end"]
    assert said == ["The first sentence is here.", " And the second one", "The third."]
    assert [event["sentence"]["index"] for event in kept.events] == [0, 0, 1, 1, 2, 2]
    assert len(kept.audio) > 24_000 * 2 * 2


def test_a_cancelled_task_ends_at_once_and_frees_the_engine(server: Server) -> None:
    kept = Kept()
    task = synthesizer(format=AudioFormat.PCM_24000HZ_MONO_16BIT, callback=kept)
    task.streaming_call("This sentence will not be heard to its end, as it is long. " * 20)
    assert kept.heard.wait(20)
    task.streaming_cancel()
    assert kept.complete.is_set()
    assert until(lambda: gauge(server, "cosyserve_engine_requests") == 0, 30) < 10
    assert len(kept.audio) < 24_000 * 2 * 30


def test_how_it_is_spoken_is_heard() -> None:
    def spoken(text: str = "Seven boats.", **options: Any) -> np.ndarray:
        return np.frombuffer(synthesizer(format=AudioFormat.PCM_24000HZ_MONO_16BIT, **options).call(text), "<i2") / 1.0

    plain = spoken()
    assert np.array_equal(spoken(), plain)
    assert np.abs(spoken(volume=25)).max() < 0.8 * np.abs(plain).max()
    assert len(spoken(speech_rate=2.0)) < 0.7 * len(plain)
    assert len(spoken(pitch_rate=1.2)) == pytest.approx(len(plain), rel=0.02)
    replaced = spoken("Boats.", hot_fix={"replace": [{"Boats": "Seven boats"}]})
    assert len(replaced) == pytest.approx(len(plain), rel=0.3)
    markup = '<speak>Seven<break time="1s"/> boats.</speak>'
    assert len(spoken(markup)) > len(plain) + 20_000


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"voice": "longxiaochun_v2"}, "voice_not_found"),
        ({"model": "cosyvoice-v9"}, "model_not_found"),
        ({"volume": 101}, "invalid_value"),
        ({"instruction": "Whisper."}, "unsupported_parameter"),
        ({"additional_params": {"word_timestamp_enabled": True}}, "unsupported_parameter"),
        ({"additional_params": {"enable_aigc_tag": True}}, "unknown_parameter"),
        ({"language_hints": ["xx"]}, "unsupported_language"),
    ],
)
def test_what_cannot_be_done_fails_the_task_with_its_code(options: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestFailure) as failure:
        synthesizer(**options).call("Hello.")
    assert failure.value.name == code
    assert failure.value.message
