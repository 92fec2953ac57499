"""Turn untrusted bytes (an upload, a data URL) into checked mono audio, with bounded time and memory."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile

from audio.errors import AudioError

__all__ = ["Audio", "AudioError", "check_reference", "decode_audio", "decode_reference", "parse_data_url"]

MAX_BYTES = 10 * 2**20
MAX_SECONDS = 30.0
"""The speech tokenizer was trained on at most 30 s; upstream refuses longer prompts too."""
MIN_SECONDS = 1.0
"""Below this a prompt holds too few phones to carry a voice (25 speech tokens)."""
MIN_SAMPLE_RATE = 16_000
"""The speech tokenizer and the speaker encoder hear up to 8 kHz; a lower rate would feed them an empty top half."""
MAX_SAMPLE_RATE = 192_000
MAX_CHANNELS = 8
MAX_PEAK = 4.0
"""Lossy codecs overshoot full scale a little; a float file far above 1.0 was scaled as integers."""

SILENCE_DBFS = -60.0
"""A quiet room through a laptop microphone is near -65 dBFS RMS, quiet speech above -45: -60 parts the two."""
MIN_SOUND_SECONDS = 0.3
"""Sound above the silence level that a prompt must hold: more than a click, less than one short word."""
SILENCE_FRAME_SECONDS = 0.025

_SIGNATURES = (
    re.compile(rb"(RIFF|RIFX|RF64)....WAVE", re.DOTALL),
    re.compile(rb"fLaC"),
    re.compile(rb"OggS"),
    re.compile(rb"FORM....AIF[FC]", re.DOTALL),
    re.compile(rb"ID3"),
    re.compile(rb"\xff[\xe2-\xff]"),  # an MPEG audio frame
)
_CONTAINERS = {"WAV", "WAVEX", "RF64", "FLAC", "OGG", "AIFF", "MP3", "MPEG"}
_ACCEPTED = "WAV, FLAC, Ogg (Vorbis or Opus), MP3 or AIFF"
_DATA_URL = re.compile(
    r"data:(?:audio/[a-z0-9!#$&^_.+-]+|application/octet-stream)(?:;[a-z0-9_-]+=[a-z0-9_.\"-]+)*;base64,",
    re.IGNORECASE,
)
_OTHER_URL = re.compile(r"\s*(?!data:)(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_BLOCK_VALUES = 2**17
_MAX_READS = 50_000
"""Thirty seconds of any accepted coding take about 2,000; bytes made to be searched one by one take millions."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono audio: `samples` [L] float32, full scale is 1.0; `sample_rate` in Hz."""

    samples: np.ndarray
    sample_rate: int

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.samples.size / self.sample_rate


class _SequentialFile(soundfile.SoundFile):
    """A sound file that is only read forwards.

    soundfile seeks after every read, which libsndfile refuses for FLAC whose header leaves the length open, and
    that is how every streamed FLAC looks. Nothing here needs to seek.
    """

    def seekable(self) -> bool:
        return False


class _Upload(io.BytesIO):
    """The uploaded bytes, for libsndfile.

    A seek to before the start, which damaged headers ask for, stays where it is: libsndfile compares the position
    it gets, while an exception in its callback would only reach standard error. The number of reads is bounded.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads = 0

    def readinto(self, buffer: Any, /) -> int:
        self._reads += 1
        return super().readinto(buffer) if self._reads <= _MAX_READS else 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


def decode_audio(data: bytes, *, max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES) -> Audio:
    """Decode a sound file held in memory to mono (mean of the channels, as upstream loads prompts).

    Length, sample rate and channel count are taken from the header first; decoding stops as soon as the limit is
    crossed even if the header understates it. Raises AudioError: ref_audio_invalid, ref_audio_too_large,
    ref_audio_too_long, ref_audio_sample_rate (above 192 kHz).
    """
    if len(data) > max_bytes:
        raise AudioError(
            "ref_audio_too_large",
            f"The reference audio has {len(data):,} bytes; at most {max_bytes:,} are accepted.",
        )
    if not any(signature.match(data) for signature in _SIGNATURES):
        raise AudioError("ref_audio_invalid", f"The reference audio is not a sound file; send {_ACCEPTED}.")
    try:
        with _SequentialFile(_Upload(data)) as file:
            _check_header(file, max_seconds)
            samples = np.concatenate([np.zeros(0, np.float32), *_read_mono(file, max_seconds)])
            rate = file.samplerate
    except AudioError:
        raise
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise AudioError(
            "ref_audio_invalid", f"The reference audio is damaged or not in a known coding; send {_ACCEPTED}."
        ) from error
    if samples.size == 0:
        raise AudioError("ref_audio_invalid", "The reference audio holds no samples.")
    return Audio(samples, rate)


def _check_header(file: soundfile.SoundFile, max_seconds: float) -> None:
    """Refuse by the header what need not be decoded to be refused."""
    if file.format not in _CONTAINERS:
        raise AudioError("ref_audio_invalid", f"The container {file.format} is not accepted; send {_ACCEPTED}.")
    if not 1 <= file.channels <= MAX_CHANNELS:
        raise AudioError(
            "ref_audio_invalid",
            f"The reference audio has {file.channels} channels; 1 to {MAX_CHANNELS} are accepted.",
        )
    if not 1 <= file.samplerate <= MAX_SAMPLE_RATE:
        raise AudioError(
            "ref_audio_sample_rate",
            f"The reference audio declares {file.samplerate} Hz; at most {MAX_SAMPLE_RATE} Hz is accepted.",
        )
    # libsndfile reports the largest 64-bit number when the header leaves the length open (streamed FLAC).
    if file.frames < 2**63 - 1 and file.frames > max_seconds * file.samplerate:
        raise _too_long(f"is {file.frames / file.samplerate:.2f} s long", max_seconds)


def _too_long(what: str, max_seconds: float) -> AudioError:
    return AudioError("ref_audio_too_long", f"The reference audio {what}; at most {max_seconds:g} s are accepted.")


def _read_mono(file: soundfile.SoundFile, max_seconds: float) -> Iterator[np.ndarray]:
    """Decode block by block, mix down and check each block; memory stays at one block of all channels."""
    limit = int(max_seconds * file.samplerate)
    block = np.empty((_BLOCK_VALUES // file.channels, file.channels), dtype=np.float32)
    total = 0
    while True:
        frames = file.read(out=block)
        total += len(frames)
        if total > limit:
            raise _too_long(f"is longer than {max_seconds:g} s", max_seconds)
        with np.errstate(over="ignore", invalid="ignore"):
            mono = frames[:, 0].copy() if file.channels == 1 else frames.mean(axis=1)
            peak = np.abs(mono).max(initial=0.0)
        if not np.isfinite(peak):
            raise AudioError("ref_audio_invalid", "The reference audio holds NaN or infinite samples.")
        if peak > MAX_PEAK:
            raise AudioError(
                "ref_audio_invalid",
                f"The reference audio reaches {peak:.3g} times full scale; at most {MAX_PEAK:g} is accepted.",
            )
        yield mono
        if len(frames) < len(block):
            return


def check_reference(audio: Audio, *, max_seconds: float = MAX_SECONDS) -> None:
    """Check that decoded audio can serve as a voice prompt (or as a source for voice conversion).

    Raises AudioError: ref_audio_sample_rate (below 16 kHz), ref_audio_too_long, ref_audio_too_short,
    ref_audio_silent, ref_audio_invalid (non-finite samples).
    """
    if audio.sample_rate < MIN_SAMPLE_RATE:
        raise AudioError(
            "ref_audio_sample_rate",
            f"The reference audio has {audio.sample_rate} Hz; at least {MIN_SAMPLE_RATE} Hz are needed.",
        )
    if audio.duration > max_seconds:
        raise _too_long(f"is {audio.duration:.2f} s long", max_seconds)
    if audio.duration < MIN_SECONDS:
        raise AudioError(
            "ref_audio_too_short",
            f"The reference audio is {audio.duration:.2f} s long; at least {MIN_SECONDS:g} s are needed.",
        )
    if not np.isfinite(audio.samples).all():
        raise AudioError("ref_audio_invalid", "The reference audio holds NaN or infinite samples.")
    sound = sound_seconds(audio)
    if sound < MIN_SOUND_SECONDS:
        raise AudioError(
            "ref_audio_silent",
            f"The reference audio is silent: {sound:.2f} s of it are louder than {SILENCE_DBFS:g} dBFS, "
            f"at least {MIN_SOUND_SECONDS:g} s are needed.",
        )


def sound_seconds(audio: Audio) -> float:
    """Seconds of 25 ms frames whose RMS, after removing each frame's mean, is above -60 dBFS.

    Frames instead of the whole clip, so that one loud click does not pass as a voice and a few words in a long
    pause do; the mean goes because a constant offset is no sound.
    """
    frame = int(audio.sample_rate * SILENCE_FRAME_SECONDS)
    count = audio.samples.size // max(frame, 1)
    if count == 0:
        return 0.0
    frames = audio.samples[: count * frame].reshape(count, frame)
    rms = frames.std(axis=1, dtype=np.float64)
    return float(np.count_nonzero(rms > 10 ** (SILENCE_DBFS / 20)) * frame / audio.sample_rate)


def decode_reference(data: bytes, *, max_seconds: float = MAX_SECONDS) -> Audio:
    """Decode an upload and check that it can serve as a voice prompt: `decode_audio` then `check_reference`."""
    audio = decode_audio(data, max_seconds=max_seconds)
    check_reference(audio, max_seconds=max_seconds)
    return audio


def parse_data_url(url: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of `data:audio/<type>;base64,<data>`.

    The service never fetches: any other URL is ref_audio_url_not_allowed, so that a request cannot make it read
    local files or reach into its network. Raises AudioError: ref_audio_url_not_allowed, ref_audio_invalid,
    ref_audio_too_large (checked before decoding).
    """
    if _OTHER_URL.match(url):
        raise AudioError(
            "ref_audio_url_not_allowed",
            "The reference audio must be sent inline as data:audio/wav;base64,...; links are never fetched.",
        )
    header = _DATA_URL.match(url)
    if header is None:
        raise AudioError("ref_audio_invalid", "The reference audio must be a data URL: data:audio/wav;base64,... .")
    payload = url[header.end() :]
    size = len(payload) * 3 // 4
    if size > max_bytes + 2:
        raise AudioError(
            "ref_audio_too_large",
            f"The reference audio has about {size:,} bytes; at most {max_bytes:,} are accepted.",
        )
    try:
        data = base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise AudioError("ref_audio_invalid", "The reference audio's base64 data is malformed.") from error
    if not data:
        raise AudioError("ref_audio_invalid", "The reference audio is empty.")
    return data
