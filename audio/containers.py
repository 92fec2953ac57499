"""Read sound files by FFmpeg, from memory alone: known containers and codings only, bounded time and memory."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import av
import numpy as np
from av.stream import Discard

from audio.errors import AudioError

ACCEPTED = "WAV, FLAC, Ogg, MP3, M4A, AAC, WebM or AIFF"
MAX_SAMPLE_RATE = 192_000
MAX_CHANNELS = 8
MAX_PEAK = 4.0
"""Lossy codecs overshoot full scale a little; a float file far above 1.0 was scaled as integers."""

# What a file begins with, and FFmpeg's name of its container. The container is never guessed: FFmpeg's own guess
# would also find playlists, which name other files.
_SIGNATURES = (
    (re.compile(rb"(RIFF|RF64)....WAVE", re.DOTALL), "wav"),
    (re.compile(rb"fLaC"), "flac"),
    (re.compile(rb"OggS"), "ogg"),
    (re.compile(rb"FORM....AIF[FC]", re.DOTALL), "aiff"),
    (re.compile(rb"....ftyp", re.DOTALL), "mov"),
    (re.compile(rb"\x1aE\xdf\xa3"), "matroska"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9]"), "aac"),
    (re.compile(rb"ID3|\xff[\xe2-\xff]"), "mp3"),
)
_PCM = "u8 s8 s16le s16be s24le s24be s32le s32be f32le f32be f64le f64be mulaw alaw"
_CODINGS = {*(f"pcm_{kind}" for kind in _PCM.split()), "flac", "alac", "vorbis", "opus", "mp3", "mp3float", "aac"}
# Boxes whose four bytes of a count FFmpeg believes, wherever they stand, and how far behind the name it begins.
_SAMPLE_TABLE = re.compile(rb"stsz|stz2|trun")
_COUNT_AT = {b"stsz": 12, b"stz2": 12, b"trun": 8}
_COMPRESSED_HEADER = b"cmov"
_MAX_READS = 50_000
"""Thirty seconds of any accepted coding take about 300; bytes made to be searched one by one take millions."""
_MAX_PACKETS = 100_000
"""Thirty seconds of the shortest packets in use (2.5 ms) are 12,000."""
_MAX_PACKET_BYTES = 2**21
"""The largest frame of FLAC, 65,535 samples of eight channels, has 1.6 MB."""
_MAX_FRAME_SAMPLES = 2**17
_MAX_BAD_SHARE = 0.1
"""Cut streams begin and end in the middle of a packet; players skip those, and so do we."""
_BAD_AT_ONCE = 20
"""So many bad packets may come before the good ones that make their share small."""
_MAX_CPU_SECONDS = 20.0
"""Five minutes of the costliest coding take a quarter of it."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """`samples` [L] float32 mono at `sample_rate` Hz; `complete` is false if the file goes on beyond them."""

    samples: np.ndarray
    sample_rate: int
    complete: bool


class _Upload(io.BytesIO):
    """The uploaded bytes, for FFmpeg: a bounded number of reads in a bounded time, and no seek to before the start."""

    def __init__(self, data: bytes, deadline: float) -> None:
        super().__init__(data)
        self._reads, self._deadline = 0, deadline

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        return super().read(size) if self._reads <= _MAX_READS and time.thread_time() < self._deadline else b""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


def decode(data: bytes, max_seconds: float, max_rate: int = MAX_SAMPLE_RATE) -> Decoded:
    """The first `max_seconds` of a sound file's first audio stream, its channels averaged, resampled to `max_rate` Hz
    if its own rate is higher.

    The length is counted as it is decoded, whatever the header declares, so that memory is bounded; so is the
    processor's time. Raises AudioError: ref_audio_invalid, ref_audio_sample_rate (above 192 kHz).
    """
    container = next((name for signature, name in _SIGNATURES if signature.match(data)), None)
    if container is None:
        raise AudioError("ref_audio_invalid", f"The reference audio is not a sound file; send {ACCEPTED}.")
    try:
        return _decode(data, container, max_seconds, max_rate)
    except AudioError:
        raise
    except (av.FFmpegError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise AudioError(
            "ref_audio_invalid", f"The reference audio is damaged or not in a known coding; send {ACCEPTED}."
        ) from error


def _decode(data: bytes, container: str, max_seconds: float, max_rate: int) -> Decoded:
    deadline = time.thread_time() + _MAX_CPU_SECONDS
    blocks: list[np.ndarray] = [np.zeros(0, np.float32)]
    total = rate = 0
    complete = True
    options = {"codec_whitelist": ",".join(_CODINGS), "format_whitelist": container, "protocol_whitelist": "none"}
    if container == "mov":
        _check_mov(data)
        options["advanced_editlist"] = "0"  # each of its entries may list all samples again
    with av.open(
        _Upload(data, deadline),
        "r",
        format=container,
        options=options,
        metadata_errors="replace",
        io_open=_refuse_to_open,
    ) as file:
        if not file.streams.audio:
            raise AudioError("ref_audio_invalid", "The reference audio holds no audio stream.")
        for frame in _frames(file, max_rate, deadline):
            if not rate:
                rate = frame.sample_rate
                _check_format(rate, frame.layout.nb_channels)
            blocks.append(_mono(frame))
            total += blocks[-1].size
            if total > max_seconds * rate:
                complete = False
                break
    if total == 0:
        raise AudioError("ref_audio_invalid", "The reference audio holds no samples.")
    return Decoded(np.concatenate(blocks)[: int(max_seconds * rate)], rate, complete)


def _check_mov(data: bytes) -> None:
    """Refuse tables of samples that are longer than the sound could need: a count of four bytes can stand for
    gigabytes of them. Sound itself (`mdat`) is passed over, the rest is searched without trust in its structure, as
    FFmpeg reads such a box inside many others. What is compressed could not be searched."""
    declared = position = boxes = 0
    while position + 8 <= len(data) and boxes <= _MAX_PACKETS:
        boxes += 1
        size = int.from_bytes(data[position : position + 4], "big")
        if size == 1:
            size = int.from_bytes(data[position + 8 : position + 16], "big")
        end = position + size if size >= 8 else len(data)
        if data[position + 4 : position + 8] != b"mdat":
            if data.find(_COMPRESSED_HEADER, position, end) >= 0:
                raise AudioError("ref_audio_invalid", "The reference audio has a compressed header.")
            for table in _SAMPLE_TABLE.finditer(data, position, end):
                count = table.start() + _COUNT_AT[table[0]]
                declared += int.from_bytes(data[count : count + 4], "big")
        position = end
    if max(declared, boxes) > _MAX_PACKETS:
        raise AudioError("ref_audio_invalid", f"The reference audio has more than {_MAX_PACKETS:,} packets.")


def _refuse_to_open(name: str, *_: object) -> NoReturn:
    raise PermissionError("a reference audio that names other files")


def _frames(file: av.container.InputContainer, max_rate: int, deadline: float) -> Iterator[av.AudioFrame]:
    """Decoded frames, float32 with the channels interleaved; packets that are damaged are left out. `deadline`: seconds
    of this thread's time."""
    stream = file.streams.audio[0]
    coding: av.AudioCodecContext | None = stream.codec_context  # none where FFmpeg knows no decoder
    if coding is None or coding.name not in _CODINGS:
        raise AudioError("ref_audio_invalid", f"The reference audio's coding is not accepted; send {ACCEPTED}.")
    _check_format(stream.rate, stream.channels)
    coding.thread_count = 1
    coding.options = {"max_samples": str(_MAX_FRAME_SAMPLES)}
    for other in file.streams:
        if other.index != stream.index:
            other.discard = Discard.all  # else they are unpacked to be thrown away
    # Not in planes: PyAV cannot read eight or more of them.
    to_float = av.AudioResampler(format="flt", rate=max_rate if stream.rate > max_rate else None)
    bad = count = 0
    for count, packet in enumerate(file.demux(stream), 1):
        _check_packet(packet, count, deadline)
        try:
            frames = packet.decode()
        except av.FFmpegError:
            bad += 1
            _check_damage(bad, count, _BAD_AT_ONCE)
            continue
        for frame in frames:
            assert isinstance(frame, av.AudioFrame)
            yield from to_float.resample(frame)
    if time.thread_time() > deadline:
        raise _too_costly()
    _check_damage(bad, count, 2)
    if stream.rate > max_rate:
        yield from to_float.resample(None)


def _check_packet(packet: av.Packet, count: int, deadline: float) -> None:
    if count > _MAX_PACKETS:
        raise AudioError("ref_audio_invalid", f"The reference audio has more than {_MAX_PACKETS:,} packets.")
    if packet.size > _MAX_PACKET_BYTES:
        raise AudioError("ref_audio_invalid", f"The reference audio has a packet of over {_MAX_PACKET_BYTES:,} bytes.")
    if time.thread_time() > deadline:
        raise _too_costly()


def _check_damage(bad: int, count: int, allowed: int) -> None:
    if bad > max(allowed, _MAX_BAD_SHARE * count):
        raise AudioError("ref_audio_invalid", f"The reference audio is damaged: {bad} of {count} packets.")


def _too_costly() -> AudioError:
    return AudioError("ref_audio_invalid", f"The reference audio takes over {_MAX_CPU_SECONDS:g} s to decode.")


def _check_format(rate: int, channels: int) -> None:
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(
            "ref_audio_invalid", f"The reference audio has {channels} channels; 1 to {MAX_CHANNELS} are accepted."
        )
    if not 1 <= rate <= MAX_SAMPLE_RATE:
        raise AudioError(
            "ref_audio_sample_rate",
            f"The reference audio declares {rate} Hz; at most {MAX_SAMPLE_RATE} Hz is accepted.",
        )


def _mono(frame: av.AudioFrame) -> np.ndarray:
    """[L] float32, the mean of the channels; what is no sound is refused."""
    channels = frame.to_ndarray().reshape(frame.samples, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        mono = channels[:, 0] if channels.shape[1] == 1 else channels.mean(axis=1)
        peak = np.abs(mono).max(initial=0.0)
    if not np.isfinite(peak):
        raise AudioError("ref_audio_invalid", "The reference audio holds NaN or infinite samples.")
    if peak > MAX_PEAK:
        raise AudioError(
            "ref_audio_invalid",
            f"The reference audio reaches {peak:.3g} times full scale; at most {MAX_PEAK:g} is accepted.",
        )
    return mono
