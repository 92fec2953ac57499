"""How much audio is in the pieces of a response: raw PCM, WAV, and server-sent events that carry either.

Nothing looks at a sample, so that a client costs next to nothing.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.loading.failure import RequestFailed

DEFAULT_RATE = 24_000
BYTES_PER_SAMPLE = 2  # of raw PCM: signed 16 bit little-endian
MAX_HEADER = 65_536
# Sizes from here on are what servers write in place of a length that they do not know yet.
OPEN_SIZE = 0x7F00_0000


class Body(Protocol):
    """A response's body as it arrives."""

    @property
    def rate_assumed(self) -> bool:
        """Whether seconds are counted at a rate that nobody named."""

    def feed(self, data: bytes) -> float:
        """Seconds of audio in the next piece. Raises RequestFailed."""

    def end(self) -> None:
        """The body has ended. Raises RequestFailed when audio that was announced is missing."""


@dataclass(frozen=True)
class PcmRate:
    """Bytes per second of raw PCM; `assumed`: nothing said so."""

    bytes_per_second: int
    assumed: bool


@dataclass(frozen=True)
class WavHeader:
    """`length`: bytes up to the first sample; `size`: bytes of samples, None when it is left open."""

    length: int
    bytes_per_second: int
    size: int | None


def pcm_rate(headers: Mapping[str, str], given: int | None) -> PcmRate:
    """From what the user gives, else from `Content-Type: audio/...;rate=24000`, else from a header such as
    X-Sample-Rate, else 24,000 Hz; mono unless the same places say otherwise."""
    parameters = headers.get("Content-Type", "").lower()
    for name, value in headers.items():
        if found := re.search(r"(?:sample[-_]?(rate)|(channels))$", name.lower()):
            parameters += f";{found[1] or found[2]}={value}"
    rate = _parameter("rate", parameters)
    samples = given or rate or DEFAULT_RATE
    return PcmRate(samples * BYTES_PER_SAMPLE * (_parameter("channels", parameters) or 1), not (given or rate))


def _parameter(name: str, parameters: str) -> int | None:
    found = re.search(rf"\b{name}\s*=\s*\"?([1-9]\d*)", parameters)
    return int(found[1]) if found else None


def body_of(content_type: str, rate: PcmRate) -> Body:
    """What reads a response of that type. Raises RequestFailed for compressed audio."""
    kind = content_type.lower().partition(";")[0].strip()
    if kind == "text/event-stream":
        return Events(rate)
    if re.fullmatch(r"(audio|video)/.*(mpeg|mp[34]|ogg|opus|flac|aac|webm|m4a).*", kind):
        raise RequestFailed("bad_audio", f"the answer is {kind}; only raw PCM and WAV can be timed")
    return Audio(rate)


class Audio:
    """Raw PCM, or WAV when the body begins like one."""

    def __init__(self, rate: PcmRate) -> None:
        self._bytes_per_second, self.rate_assumed = rate.bytes_per_second, rate.assumed
        self._head: bytes | None = b""  # what came before it was known what comes
        self._left: int | None = None  # bytes of a WAV file that are still to come

    def feed(self, data: bytes) -> float:
        if self._head is not None:
            data = self._begin(self._head + data)
        size = len(data)
        if self._left is not None:  # other chunks may follow the samples
            size = min(size, self._left)
            self._left -= size
        return size / self._bytes_per_second

    def _begin(self, head: bytes) -> bytes:
        """The audio in `head`."""
        self._head = head
        if b"RIFF".startswith(head[:4]):
            header = wav_header(head)
            if header is None:
                return b""
            self._bytes_per_second, self._left, self.rate_assumed = header.bytes_per_second, header.size, False
            head = head[header.length :]
        self._head = None
        return head

    def end(self) -> None:
        if self._left:
            raise RequestFailed("broken", f"the WAV file ended {self._left} bytes before its end")


def wav_header(head: bytes) -> WavHeader | None:
    """The header at the beginning of a file; None when it needs more of it. Raises RequestFailed."""
    bytes_per_second = 0
    position = 12
    if len(head) >= position and head[8:position] != b"WAVE":
        raise RequestFailed("bad_audio", "a RIFF file that is no WAV")
    while len(head) >= position + 8:
        name, size = struct.unpack_from("<4sI", head, position)
        position += 8
        if name == b"data":
            if not bytes_per_second:
                raise RequestFailed("bad_audio", "a WAV header without a format")
            return WavHeader(position, bytes_per_second, size if 0 < size < OPEN_SIZE else None)
        if name == b"fmt ":
            if len(head) < position + 16:
                return None
            _, _, rate, _, frame = struct.unpack_from("<HHIIH", head, position)
            bytes_per_second = rate * frame  # the header's own figure for it is often wrong
        position += size + size % 2
    if len(head) > MAX_HEADER:
        raise RequestFailed("bad_audio", "a WAV header without an end")
    return None


class Events:
    """Server-sent events with base64 in `audio` (OpenAI's), in `delta` or in `audio.data` (other servers')."""

    def __init__(self, rate: PcmRate) -> None:
        self._rate = rate
        self._audio = Audio(rate)
        self._line = b""

    @property
    def rate_assumed(self) -> bool:
        return self._audio.rate_assumed

    def feed(self, data: bytes) -> float:
        *lines, self._line = (self._line + data).split(b"\n")
        return sum(self._seconds(line[5:].strip()) for line in lines if line.startswith(b"data:"))

    def _seconds(self, payload: bytes) -> float:
        if payload == b"[DONE]":
            return 0.0
        try:
            event = json.loads(payload)
            if not isinstance(event, dict):
                raise ValueError("not an object")
            if event.get("error") or str(event.get("type")).endswith("error"):
                raise RequestFailed("error_event", message_in(payload))
            found = event.get("audio") or event.get("delta") or ""
            data = base64.b64decode(found.get("data") or "" if isinstance(found, dict) else found)
        except (ValueError, TypeError) as error:
            raise RequestFailed("bad_audio", f"an event that cannot be read: {error}") from error
        if data[:4] == b"RIFF":  # some send one file, some one with each event
            self._audio = Audio(self._rate)
        return self._audio.feed(data)

    def end(self) -> None:
        self._audio.end()


def message_in(body: bytes) -> str:
    """The sentence in an error's body, on one line: OpenAI's `error.message`, FastAPI's `detail`, or all of it."""
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        error = answer.get("error") or answer.get("detail") or answer.get("message") or answer
        text = str(error.get("message") or error) if isinstance(error, dict) else str(error)
    return " ".join(text.split())[:200]
