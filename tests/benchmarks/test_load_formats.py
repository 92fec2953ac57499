"""How much audio the load generator counts in a response, however it is cut into pieces."""

from __future__ import annotations

import base64
import io
import json
import struct
import wave

import pytest

from audio.encode import wav_header as streamed_header
from benchmarks.loading.failure import RequestFailed
from benchmarks.loading.formats import PcmRate, body_of, message_in, pcm_rate

SECOND = PcmRate(48_000, assumed=True)
OPEN = 0xFFFFFFFF


def wav(seconds: float, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(bytes(int(seconds * rate) * channels * width))
    return file.getvalue()


def riff(*chunks: tuple[bytes, int, bytes]) -> bytes:
    """Chunks of a name, a size that need not be true, and content."""
    return struct.pack("<4sI4s", b"RIFF", OPEN, b"WAVE") + b"".join(
        struct.pack("<4sI", name, size) + content for name, size, content in chunks
    )


FORMAT = struct.pack("<HHIIHH", 3, 2, 8000, 1, 8, 32)  # two channels of 32 bit floats; the byte rate is wrong


def event(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def seconds(content_type: str, content: bytes, size: int) -> float:
    body = body_of(content_type, SECOND)
    total = sum(body.feed(content[at : at + size]) for at in range(0, len(content), size))
    body.end()
    return total


@pytest.mark.parametrize("size", [5, 1000, 10**6])
@pytest.mark.parametrize(
    ("content_type", "content", "expected"),
    [
        ("audio/pcm", bytes(24_000), 0.5),
        ("application/octet-stream", b"RI" + bytes(23_998), 0.5),  # samples that only begin like a WAV
        ("audio/wav", wav(0.25), 0.25),
        ("audio/pcm", wav(0.25, 48_000, 2), 0.25),  # PCM was asked for, WAV came
        ("audio/wav", streamed_header(24_000, None) + bytes(24_000), 0.5),
        ("audio/wav", streamed_header(24_000, 0) + bytes(24_000), 0.5),
        ("audio/wav", riff((b"fmt ", 16, FORMAT), (b"data", 0x7FFFFFFF, bytes(8000))), 0.125),
        ("audio/wav", riff((b"JUNK", 3, bytes(4)), (b"fmt ", 16, FORMAT), (b"data", OPEN, bytes(8000))), 0.125),
        ("audio/wav", riff((b"fmt ", 16, FORMAT), (b"data", 8000, bytes(8000)), (b"LIST", 400, bytes(400))), 0.125),
        ("text/event-stream", event({"type": "speech.audio.delta", "audio": b64(bytes(24_000))}) * 2, 1.0),
        ("text/event-stream; charset=utf-8", event({"delta": b64(bytes(24_000))}) + b"data: [DONE]\n\n", 0.5),
        ("text/event-stream", event({"audio": {"data": b64(wav(0.25))}}) * 2 + event({"audio": None}), 0.5),
        (
            "text/event-stream",
            b": hello\r\nevent: speech.audio.delta\r\n"
            + event({"audio": b64(streamed_header(16_000, None))}).replace(b"\n", b"\r\n")
            + event({"audio": b64(bytes(16_000))})
            + event({"type": "speech.audio.done"}),
            0.5,
        ),
    ],
)
def test_audio_is_counted(content_type: str, content: bytes, expected: float, size: int) -> None:
    assert seconds(content_type, content, size) == pytest.approx(expected)


def test_a_header_is_no_audio() -> None:
    body = body_of("audio/wav", SECOND)
    assert body.feed(streamed_header(24_000, None)) == 0.0
    assert body.feed(bytes(2)) > 0.0


@pytest.mark.parametrize(
    ("content_type", "content", "kind"),
    [
        ("audio/mpeg", b"", "bad_audio"),
        ("audio/ogg; codecs=opus", b"", "bad_audio"),
        ("audio/wav", b"RIFF\0\0\0\0AVI LIST", "bad_audio"),
        ("audio/wav", riff((b"data", OPEN, bytes(100))), "bad_audio"),
        ("audio/wav", riff((b"JUNK", 10**6, bytes(70_000))), "bad_audio"),
        ("audio/wav", wav(0.25)[:-2], "broken"),
        ("text/event-stream", event({"type": "speech.audio.error", "error": {"message": "no"}}), "error_event"),
        ("text/event-stream", event({"error": "no"}), "error_event"),
        ("text/event-stream", b"data: {audio}\n", "bad_audio"),
        ("text/event-stream", b"data: [1]\n", "bad_audio"),
        ("text/event-stream", event({"audio": "abc"}), "bad_audio"),
        ("text/event-stream", event({"audio": 7}), "bad_audio"),
    ],
)
def test_what_cannot_be_counted_is_a_failure(content_type: str, content: bytes, kind: str) -> None:
    with pytest.raises(RequestFailed) as failed:
        seconds(content_type, content, 1000)
    assert failed.value.failure.kind == kind


@pytest.mark.parametrize(
    ("headers", "given", "expected"),
    [
        ({"Content-Type": "audio/pcm;rate=22050;channels=2"}, None, PcmRate(88_200, False)),
        ({"Content-Type": "audio/pcm; rate=22050"}, 16_000, PcmRate(32_000, False)),
        ({"Content-Type": "audio/pcm", "X-Sample-Rate": "44100"}, None, PcmRate(88_200, False)),
        ({"x-audio-samplerate": "8000", "X-Audio-Channels": "2"}, None, PcmRate(32_000, False)),
        ({"Content-Type": "audio/pcm", "X-Bit-Rate": "128"}, None, PcmRate(48_000, True)),
        ({}, None, PcmRate(48_000, True)),
    ],
)
def test_the_rate_of_raw_pcm_is_given_or_read_or_assumed(headers: dict, given: int | None, expected: PcmRate) -> None:
    assert pcm_rate(headers, given) == expected


def test_the_rate_is_assumed_only_where_it_is_needed() -> None:
    for content_type, content, assumed in (
        ("audio/pcm", bytes(100), True),
        ("audio/wav", wav(0.1), False),
        ("text/event-stream", event({"audio": b64(bytes(100))}), True),
        ("text/event-stream", event({"audio": b64(wav(0.1))}), False),
    ):
        body = body_of(content_type, SECOND)
        body.feed(content)
        assert body.rate_assumed is assumed


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too  long\\n", "code": 1}}', "too long"),
        (b'{"error": "full"}', "full"),
        (b'{"detail": [{"msg": "field required"}]}', "[{'msg': 'field required'}]"),
        (b'{"message": "no"}', "no"),
        (b"<h1>Bad\ngateway</h1>", "<h1>Bad gateway</h1>"),
        (b"\xff" * 500, "\ufffd" * 200),
        (b"[1]", "[1]"),
    ],
)
def test_an_error_is_one_line(body: bytes, message: str) -> None:
    assert message_in(body) == message
