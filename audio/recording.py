"""Judge and trim a recording: how much of it is sound, how much is clipped, where it pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SILENCE_DBFS = -60.0
"""A quiet room through a laptop microphone is near -65 dBFS RMS, quiet speech above -45: -60 parts the two."""
SILENCE_BELOW_LOUDEST_DB = 40.0
"""In a noisier room: what is so far below the loudest frame is no part of a word (fricatives are 20 to 30 below)."""
FRAME_SECONDS = 0.025
MARGIN_SECONDS = 0.1
"""Kept around the sound when silence is cut off: soft beginnings of words, and their decay."""
PAUSE_SECONDS = 0.2
"""Shortest pause between phrases; stops within words (p, t, k) close the mouth for less than 0.15 s."""
FLAT = 1e-4
FLAT_SAMPLES = 3
"""Clipping leaves at least three neighbours at one level, to 3 steps of 16 bits; a round peak has fewer."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono audio: `samples` [L] float32, full scale is 1.0; `sample_rate` in Hz."""

    samples: np.ndarray
    sample_rate: int

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.samples.size / self.sample_rate


def sound_seconds(audio: Audio) -> float:
    """Seconds of 25 ms frames whose RMS, after removing each frame's mean, is above -60 dBFS.

    Frames instead of the whole clip, so that one loud click does not pass as a voice and a few words in a long
    pause do; the mean goes because a constant offset is no sound.
    """
    levels = _levels(audio)
    return float(np.count_nonzero(levels > 10 ** (SILENCE_DBFS / 20)) * _frame_length(audio) / audio.sample_rate)


def clipped_share(samples: np.ndarray) -> float:
    """The share of [L] samples in flat tops: three or more in a row at the highest or at the lowest level.

    Where the ceiling lies does not matter, so that a recording which was clipped and then turned down is found too.
    Lossy codecs round the tops off: what was clipped before them passes.
    """
    clipped = 0
    for side in (samples, -samples):
        peak = side.max(initial=0.0)
        flat = side >= peak * (1 - FLAT) if peak > 0 else np.zeros(0, bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]])))
        runs = edges[1::2] - edges[::2]
        clipped += int(runs[runs >= FLAT_SAMPLES].sum())
    return clipped / max(samples.size, 1)


def trimmed(audio: Audio, max_seconds: float) -> tuple[Audio, bool]:
    """Without silence at both ends, and at most `max_seconds` long; and whether all of the sound is still there.

    Longer sound ends within the last third of that, in the middle of the quietest 0.2 s (the last of them, if there are
    several to 3 dB): in a pause, if there is one. Silence is what lies below -60 dBFS or 40 dB below the loudest frame;
    0.1 s of it stays.
    """
    levels = _levels(audio)
    loudest = levels.max(initial=0.0)
    threshold = max(10 ** (SILENCE_DBFS / 20), loudest * 10 ** (-SILENCE_BELOW_LOUDEST_DB / 20))
    sound = np.flatnonzero(levels > threshold)
    frame, limit = _frame_length(audio), int(max_seconds * audio.sample_rate)
    if sound.size == 0:
        return Audio(audio.samples[:limit], audio.sample_rate), True
    margin = round(MARGIN_SECONDS * audio.sample_rate)
    first = max(0, sound[0] * frame - margin)
    last = min(audio.samples.size, (sound[-1] + 1) * frame + margin)
    whole = last - first <= limit
    if not whole:
        last = first + _pause(levels[first // frame : (first + limit) // frame], frame)
    return Audio(audio.samples[first:last], audio.sample_rate), whole


def _pause(levels: np.ndarray, frame: int) -> int:
    """Where to end, in samples, within the last third of the frames' `levels`."""
    width = round(PAUSE_SECONDS / FRAME_SECONDS)
    start = len(levels) * 2 // 3
    energy = np.convolve(levels[start:] ** 2, np.ones(width), mode="valid")
    quietest = np.flatnonzero(energy <= 2 * energy.min())
    return (start + int(quietest[-1]) + width // 2) * frame


def _frame_length(audio: Audio) -> int:
    return max(1, int(audio.sample_rate * FRAME_SECONDS))


def _levels(audio: Audio) -> np.ndarray:
    """[frames] float64, each whole frame's RMS about its mean."""
    frame = _frame_length(audio)
    count = audio.samples.size // frame
    return audio.samples[: count * frame].reshape(count, frame).std(axis=1, dtype=np.float64)
