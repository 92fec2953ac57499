"""Turn untrusted bytes (an upload, a data URL) into checked mono audio, with bounded time and memory."""

from __future__ import annotations

import base64
import re

import numpy as np

from audio.containers import MAX_PEAK, MAX_SAMPLE_RATE, Decoded, decode
from audio.errors import AudioError
from audio.recording import SILENCE_DBFS, Audio, clipped_share, sound_seconds, trimmed

__all__ = [
    "MAX_PEAK",
    "MAX_SAMPLE_RATE",
    "MIN_SAMPLE_RATE",
    "Audio",
    "AudioError",
    "check_reference",
    "decode_audio",
    "decode_reference",
    "parse_data_url",
]

MAX_BYTES = 10 * 2**20
MAX_SECONDS = 30.0
"""The speech tokenizer was trained on at most 30 s; upstream refuses longer prompts too."""
MIN_SECONDS = 1.0
"""Below this a prompt holds too few phones to carry a voice (25 speech tokens)."""
MIN_SAMPLE_RATE = 16_000
"""The speech tokenizer and the speaker encoder hear up to 8 kHz; a lower rate would feed them an empty top half."""
MIN_SOUND_SECONDS = 0.3
"""Sound above the silence level that a prompt must hold: more than a click, less than one short word."""
MAX_CLIPPED_SHARE = 0.02
"""Speech 6 dB too loud for its converter has 1 % of its samples at the ceiling, at 10 dB 2 to 4 %, and sounds harsh."""
TRIM_SECONDS = 120.0
"""How far into a longer recording `trim` looks for the sound to keep."""

_DATA_URL = re.compile(
    r"data:(?:(?:audio|video)/[a-z0-9!#$&^_.+-]+|application/octet-stream)(?:;[a-z0-9_-]+=[a-z0-9_.\"-]+)*;base64,",
    re.IGNORECASE,
)
_OTHER_URL = re.compile(r"\s*(?!data:)(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def decode_audio(
    data: bytes, *, max_seconds: float = MAX_SECONDS, max_bytes: int = MAX_BYTES, max_rate: int = MAX_SAMPLE_RATE
) -> Audio:
    """Decode a sound file held in memory to mono (mean of the channels, as upstream loads prompts).

    What the file is, its first bytes say, not its name. Decoding stops as soon as the limit is crossed, whatever
    length the header declares. Sound of a higher rate than `max_rate` Hz is resampled to it on the way. Raises
    AudioError: ref_audio_invalid, ref_audio_too_large, ref_audio_too_long, ref_audio_sample_rate (above 192 kHz).
    """
    decoded = _decoded(data, max_seconds, max_bytes, max_rate)
    if not decoded.complete:
        raise _too_long(f"longer than {max_seconds:g} s", max_seconds)
    return Audio(decoded.samples, decoded.sample_rate)


def _decoded(data: bytes, seconds: float, max_bytes: int, max_rate: int = MAX_SAMPLE_RATE) -> Decoded:
    if len(data) > max_bytes:
        raise AudioError(
            "ref_audio_too_large",
            f"The reference audio has {len(data):,} bytes; at most {max_bytes:,} are accepted.",
        )
    return decode(data, seconds, max_rate)


def _too_long(length: str, max_seconds: float) -> AudioError:
    return AudioError("ref_audio_too_long", f"The reference audio is {length}; at most {max_seconds:g} s are accepted.")


def check_reference(audio: Audio, *, max_seconds: float = MAX_SECONDS) -> None:
    """Check that decoded audio can serve as a voice prompt (or as a source for voice conversion).

    Raises AudioError: ref_audio_sample_rate (below 16 kHz), ref_audio_too_long, ref_audio_too_short,
    ref_audio_silent, ref_audio_clipped, ref_audio_invalid (non-finite samples).
    """
    if audio.sample_rate < MIN_SAMPLE_RATE:
        raise AudioError(
            "ref_audio_sample_rate",
            f"The reference audio has {audio.sample_rate} Hz; at least {MIN_SAMPLE_RATE} Hz are needed.",
        )
    if audio.duration > max_seconds:
        raise _too_long(f"{audio.duration:.2f} s long", max_seconds)
    if audio.duration < MIN_SECONDS:
        raise AudioError(
            "ref_audio_too_short",
            f"The reference audio is {audio.duration:.2f} s long; at least {MIN_SECONDS:g} s are needed.",
        )
    if not np.isfinite(audio.samples).all():
        raise AudioError("ref_audio_invalid", "The reference audio holds NaN or infinite samples.")
    _check_sound(audio)


def _check_sound(audio: Audio) -> None:
    sound = sound_seconds(audio)
    if sound < MIN_SOUND_SECONDS:
        raise AudioError(
            "ref_audio_silent",
            f"The reference audio is silent: {sound:.2f} s of it are louder than {SILENCE_DBFS:g} dBFS, "
            f"at least {MIN_SOUND_SECONDS:g} s are needed.",
        )
    clipped = clipped_share(audio.samples)
    if clipped > MAX_CLIPPED_SHARE:
        raise AudioError(
            "ref_audio_clipped",
            f"The reference audio is clipped: {clipped:.1%} of its samples are cut off at its loudest level, "
            f"at most {MAX_CLIPPED_SHARE:.0%} are accepted.",
        )


def decode_reference(
    data: bytes, *, max_seconds: float = MAX_SECONDS, trim: bool = False, transcribed: bool = False
) -> Audio:
    """Decode an upload and check that it can serve as a voice prompt: `decode_audio` then `check_reference`.

    `trim`: silence at both ends goes, and a recording that is still longer than `max_seconds` ends at a pause before
    that, instead of being refused; what lies beyond its first two minutes is not looked at. One that has a transcript
    (`transcribed`) may lose silence alone: ref_audio_too_long.
    """
    if trim:
        decoded = _decoded(data, TRIM_SECONDS, MAX_BYTES)
        audio, whole = trimmed(Audio(decoded.samples, decoded.sample_rate), max_seconds)
        if transcribed and not (whole and decoded.complete):
            raise AudioError(
                "ref_audio_too_long",
                f"The reference audio has sound beyond {max_seconds:g} s, which its transcript speaks of: cut both, or "
                "leave the transcript out.",
            )
    else:
        audio = decode_audio(data, max_seconds=max_seconds)
    check_reference(audio, max_seconds=max_seconds)
    return audio


def parse_data_url(url: str, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of `data:audio/<type>;base64,<data>`; browsers call a recording without pictures `video/webm` too.

    Nothing is fetched here: any other URL is ref_audio_url_not_allowed, so that a request cannot make the service read
    local files or reach into its network. Raises AudioError: ref_audio_url_not_allowed, ref_audio_invalid,
    ref_audio_too_large (checked before decoding).
    """
    if _OTHER_URL.match(url):
        raise AudioError(
            "ref_audio_url_not_allowed",
            "The reference audio must be sent inline as data:audio/wav;base64,...; links are fetched only where the "
            "operator has set COSYSERVE_REF_HOSTS.",
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
