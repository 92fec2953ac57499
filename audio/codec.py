"""The coded formats (MP3, Opus, FLAC, AAC): FFmpeg's encoder and container, its bytes handed out as they are made."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import av
import numpy as np

from audio.pcm import to_pcm16
from audio.shape import Shaper


@dataclass(frozen=True)
class Coding:
    """One coded format: names as FFmpeg has them, `rates` in Hz that it is coded at (none: any)."""

    content_type: str
    container: str
    codec: str
    rates: tuple[int, ...] = ()
    bit_rate: int | None = None
    codec_options: dict[str, str] = field(default_factory=dict)
    container_options: dict[str, str] = field(default_factory=dict)
    stream_options: dict[str, str] = field(default_factory=dict)
    """Of the container, when it is sent while it is made: nothing that is only filled in at the end."""


# MP3 and AAC add a frame of delay and up to another of padding, and a stream cannot say so: at 24 kHz that is 85 ms, at
# 44.1 and 48 kHz at most 53. What has another rate is resampled upwards, which loses nothing. Opus always plays at
# 48 kHz. The encoders' quicker settings: 10 to 14 ms of work for a second of speech instead of 30.
CODINGS = {
    "mp3": Coding(
        "audio/mpeg",
        *("mp3", "libmp3lame", (44_100, 48_000), 96_000),
        codec_options={"compression_level": "7", "reservoir": "0"},  # no frame waits for later ones' spare bits
        container_options={"id3v2_version": "0"},
        stream_options={"write_xing": "0"},
    ),
    "opus": Coding(
        "audio/ogg; codecs=opus",
        *("ogg", "libopus", (48_000,), 64_000),
        container_options={"page_duration": "20000"},  # a page for each packet: no packet waits for the page to fill
    ),
    # The fastest setting has the shortest blocks (27 ms or less), which bounds what the encoder holds back.
    "flac": Coding("audio/flac", "flac", "flac", codec_options={"compression_level": "0"}),
    "aac": Coding("audio/aac", "adts", "aac", (44_100, 48_000), 96_000, codec_options={"aac_coder": "fast"}),
}


class _Outbox:
    """A write-only file whose bytes are handed out as they arrive.

    A muxer goes back at the end to fill in lengths and checksums; what has been handed out cannot change any more,
    so those writes apply only to bytes that are still here.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._position = 0
        self._waiting = bytearray()

    def take(self) -> bytes:
        """Everything written since the last call."""
        taken = bytes(self._waiting)
        self._sent += len(taken)
        self._waiting.clear()
        return taken

    def write(self, data: bytes) -> int:
        start = self._position - self._sent
        self._position += len(data)
        if start >= 0:
            self._waiting[start : start + len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._sent + len(self._waiting)}
        self._position = max(0, base[whence] + offset)
        return self._position

    def tell(self) -> int:
        return self._position


class CodecEncoder:
    """One response in a coded format; an `Encoder`.

    If nothing is taken out before `end` (`add` instead of `feed`), the container's lengths are exact: MP3 says what
    to skip at both ends, FLAC its number of samples and its checksum. While it streams both stay open. Ogg Opus is
    exact either way. `streamed` says which it will be.
    """

    def __init__(self, coding: Coding, sample_rate: int, *, streamed: bool = True) -> None:
        self.content_type = coding.content_type
        self.sample_rate = coded_rate(coding, sample_rate)
        self._shaper = Shaper(sample_rate, self.sample_rate)
        self._outbox = _Outbox()
        self._encoded = 0
        options = {"flush_packets": "1", **coding.container_options, **(coding.stream_options if streamed else {})}
        self._container = av.open(self._outbox, "w", format=coding.container, options=options)
        stream = self._container.add_stream(coding.codec, self.sample_rate, options=coding.codec_options)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.layout = "mono"
        if coding.bit_rate is not None:
            self._stream.bit_rate = coding.bit_rate
        self._container.start_encoding()

    def begin(self) -> bytes:
        return self._outbox.take()

    def add(self, samples: np.ndarray) -> None:
        """Encode without handing anything out."""
        self._encode(self._shaper.feed(samples))

    def feed(self, samples: np.ndarray) -> bytes:
        self.add(samples)
        return self._outbox.take()

    def end(self) -> bytes:
        self._encode(self._shaper.end())
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._outbox.take()

    def _encode(self, samples: np.ndarray) -> None:
        if samples.size == 0:
            return
        frame = av.AudioFrame.from_ndarray(to_pcm16(samples)[None], format="s16", layout="mono")
        frame.sample_rate = self.sample_rate
        frame.pts = self._encoded
        self._encoded += samples.size
        self._container.mux(self._stream.encode(frame))


def coded_rate(coding: Coding, sample_rate: int) -> int:
    """The rate in Hz at which audio of `sample_rate` Hz is coded."""
    return sample_rate if not coding.rates or sample_rate in coding.rates else max(coding.rates)
