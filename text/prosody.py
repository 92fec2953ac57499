"""The values of SSML's `break` and `prosody`: seconds of pause, and how much faster, louder, higher (SSML 1.1, 3.2)."""

from __future__ import annotations

import re

MAX_BREAK_SECONDS = 10.0
MIN_RATE, MAX_RATE = 0.25, 4.0
MAX_GAIN = 4.0  # 12 dB
MIN_PITCH, MAX_PITCH = 0.5, 2.0

_STRENGTHS = {"none": 0.0, "x-weak": 0.25, "weak": 0.5, "medium": 0.75, "strong": 1.0, "x-strong": 1.25}
_RATES = {"x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.5, "x-fast": 2.0}
_VOLUMES = {"silent": 0.0, "x-soft": 0.25, "soft": 0.5, "medium": 1.0, "default": 1.0, "loud": 1.5, "x-loud": 2.0}
_PITCHES = {"x-low": 0.7, "low": 0.85, "medium": 1.0, "default": 1.0, "high": 1.15, "x-high": 1.4}
_NUMBER = r"(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})"
_TIME = re.compile(_NUMBER + "(ms|s)")
_FACTOR = re.compile(_NUMBER)
_PERCENT = re.compile(f"([+-]?){_NUMBER}%")
_DECIBEL = re.compile(f"([+-]?){_NUMBER}dB")
_SEMITONES = re.compile(f"([+-]){_NUMBER}st")


def pause(time: str | None, strength: str | None) -> float:
    """Seconds of a `break`. Raises ValueError with a sentence, as all of this module."""
    if strength is not None and strength not in _STRENGTHS:
        raise ValueError(f"strength is one of {', '.join(_STRENGTHS)}.")
    if time is None:
        return _STRENGTHS[strength or "medium"]
    match = _TIME.fullmatch(time.strip())
    seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else -1.0
    if not 0 <= seconds <= MAX_BREAK_SECONDS:
        raise ValueError(f"time is like 500ms or 1.5s, at most {MAX_BREAK_SECONDS:g}s.")
    return seconds


def rate(value: str) -> float:
    """ "slow", "120%", "+20%", "1.2" → the factor of speed."""
    factor = _RATES.get(value)
    if match := _PERCENT.fullmatch(value):
        factor = _percent(match)
    elif match := _FACTOR.fullmatch(value):
        factor = float(match[1])
    if factor is None or not MIN_RATE <= factor <= MAX_RATE:
        raise ValueError(f"rate is one of {', '.join(_RATES)}, or {MIN_RATE:.0%} to {MAX_RATE:.0%}, or like +20%.")
    return factor


def volume(value: str) -> float:
    """ "soft", "+6dB", "-20%" → the factor of amplitude."""
    factor = _VOLUMES.get(value)
    if match := _DECIBEL.fullmatch(value):
        factor = 10 ** (_bounded(match) / 20)
    elif (match := _PERCENT.fullmatch(value)) and match[1]:
        factor = _percent(match)
    if factor is None or not 0 <= factor <= MAX_GAIN:
        raise ValueError(f"volume is one of {', '.join(_VOLUMES)}, or like +6dB (at most 12) or -20%.")
    return factor


def pitch(value: str) -> float:
    """ "high", "+10%", "-2st" → the factor of frequency."""
    factor = _PITCHES.get(value)
    if match := _SEMITONES.fullmatch(value):
        factor = 2 ** (_bounded(match) / 12)
    elif (match := _PERCENT.fullmatch(value)) and match[1]:
        factor = _percent(match)
    if factor is None or not MIN_PITCH <= factor <= MAX_PITCH:
        raise ValueError(f"pitch is one of {', '.join(_PITCHES)}, or like +10% or -2st, within an octave.")
    return factor


def _bounded(match: re.Match[str]) -> float:
    """Beyond any limit, but still in range of a power."""
    return max(-600.0, min(600.0, float(match[1] + match[2])))


def _percent(match: re.Match[str]) -> float:
    """50% is half; +20% and -20% are relative to what was."""
    return (100 * bool(match[1]) + float(match[1] + match[2])) / 100


def check_product(speed: float, volume_: float, pitch_: float) -> None:
    """Of nested elements. Raises ValueError."""
    if not (MIN_RATE <= speed <= MAX_RATE and volume_ <= MAX_GAIN and MIN_PITCH <= pitch_ <= MAX_PITCH):
        raise ValueError(
            f"Nested prosody comes to a rate of {speed:.0%}, a volume of {volume_:.0%} and a pitch of {pitch_:.0%}; "
            f"the limits are {MIN_RATE:.0%} to {MAX_RATE:.0%}, {MAX_GAIN:.0%} and {MIN_PITCH:.0%} to {MAX_PITCH:.0%}."
        )
