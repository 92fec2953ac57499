"""Shape speech while it is made: sample rate, pitch, volume and a fade-in, block by block."""

from __future__ import annotations

import math

import av
import av.filter
import numpy as np
from av.error import BlockingIOError as NothingYet
from av.error import EOFError as NothingMore

from audio.errors import AudioError

FADE_IN_SECONDS = 0.010
MIN_PITCH, MAX_PITCH = 0.5, 2.0
PIECE_SECONDS = 0.010
"""The stretching filter holds back as much as it was last given, so it is given little at a time."""
STRETCH_TAIL_SECONDS = 0.1
"""More than one window of the stretching filter: silence that pushes the last of the sound out of it."""
RESAMPLER = "filter_size=64:cutoff=0.97"
"""Windowed sinc of 64 taps at the lower rate: 100 dB between signal and error, 4 ms of look-ahead at 8 kHz."""


class Shaper:
    """One stream's shape: `feed` any number of times, then `end`.

    The samples do not depend on how the stream was cut into blocks, and together they last exactly as long as what was
    fed. `volume` is a linear gain; what exceeds full scale is left to the encoder, which saturates. `pitch` is a
    ratio of frequencies, 0.5 to 2.0: the speech is stretched in time by WSOLA (Verhelst and Roelands, 1993; FFmpeg's
    `atempo`) and played back faster or slower by resampling (FFmpeg's `aresample`), which keeps its duration and holds
    back up to 0.1 s. Changing the rate alone holds back up to 4 ms, changing neither nothing. Raises ValueError for
    values out of range.
    """

    def __init__(
        self, rate_in: int, rate_out: int, volume: float = 1.0, pitch: float = 1.0, fade_in: bool = False
    ) -> None:
        if rate_in < 1 or rate_out < 1:
            raise ValueError(f"sample rates must be positive, got {rate_in} and {rate_out}")
        if not MIN_PITCH <= pitch <= MAX_PITCH:
            raise ValueError(f"the pitch must be {MIN_PITCH} to {MAX_PITCH}, got {pitch}")
        if not 0 <= volume < math.inf:
            raise ValueError(f"the volume must be a positive gain, got {volume}")
        self._rate_in, self._rate_out = rate_in, rate_out
        self._volume = np.float32(volume)
        self._filter = None if rate_in == rate_out and pitch == 1 else _Filter(rate_in, rate_out, pitch)
        self._ramp = _ramp(rate_out) if fade_in else np.ones(0, np.float32)
        self._taken = self._given = 0
        self._waiting = np.zeros(0, np.float32)

    def feed(self, samples: np.ndarray) -> np.ndarray:
        """[L] float32 at `rate_in` -> [M] float32 at `rate_out`, as much as is ready.

        Raises AudioError nonfinite_audio.
        """
        samples = np.asarray(samples, np.float32)
        if samples.ndim != 1:
            raise ValueError(f"expected mono audio of shape [L], got {list(samples.shape)}")
        if not np.isfinite(samples).all():
            raise AudioError("nonfinite_audio", "The model produced NaN or infinite samples.")
        self._taken += samples.size
        return self._give(samples if self._filter is None else self._filter.feed(samples))

    def end(self) -> np.ndarray:
        """[M] float32: what was held back, so that the whole has round(L * rate_out / rate_in) samples."""
        rest = self._give(np.zeros(0, np.float32) if self._filter is None else self._filter.end())
        missing = round(self._taken * self._rate_out / self._rate_in) - self._given
        return np.concatenate([rest, np.zeros(missing, np.float32)])

    def _give(self, made: np.ndarray) -> np.ndarray:
        """Never more than lasts as long as what was taken: the stretching filter is not exact to the sample."""
        made = np.concatenate([self._waiting, made])
        due = round(self._taken * self._rate_out / self._rate_in) - self._given
        given, self._waiting = made[:due] * self._volume, made[due:]
        fading = self._ramp[self._given : self._given + given.size]
        given[: fading.size] *= fading
        self._given += given.size
        return given


def _ramp(rate: int) -> np.ndarray:
    """[10 ms] float32, half a Hann window from 0 towards 1."""
    length = round(rate * FADE_IN_SECONDS)
    return (0.5 - 0.5 * np.cos(np.pi * np.arange(length) / length)).astype(np.float32)


class _Filter:
    """FFmpeg's filters in a row: stretch in time by `pitch`, take the result for faster audio, resample."""

    def __init__(self, rate_in: int, rate_out: int, pitch: float) -> None:
        self._rate = rate_in
        self._tail = round(STRETCH_TAIL_SECONDS * rate_in) if pitch != 1 else 0
        self._step = max(1, round(PIECE_SECONDS * rate_in)) if pitch != 1 else None
        self._pushed = 0
        self._graph = av.filter.Graph()
        chain = [self._graph.add_abuffer(sample_rate=rate_in, format="flt", layout="mono")]
        if pitch != 1:
            chain.append(self._graph.add("atempo", f"{1 / pitch:.9f}"))
            chain.append(self._graph.add("asetrate", str(round(rate_in * pitch))))
        chain.append(self._graph.add("aresample", f"{rate_out}:{RESAMPLER}"))
        chain.append(self._graph.add("abuffersink"))
        self._graph.link_nodes(*chain).configure()

    def feed(self, samples: np.ndarray) -> np.ndarray:
        step = self._step or max(1, samples.size)
        made = [np.zeros(0, np.float32)]
        for first in range(0, samples.size, step):
            made.extend(self._push(samples[first : first + step]))
        return np.concatenate(made)

    def end(self) -> np.ndarray:
        rest = self.feed(np.zeros(self._tail, np.float32))
        self._graph.push(None)
        return np.concatenate([rest, *self._pull()])

    def _push(self, samples: np.ndarray) -> list[np.ndarray]:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[None]), format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._pushed
        self._pushed += samples.size
        self._graph.push(frame)
        return self._pull()

    def _pull(self) -> list[np.ndarray]:
        made = []
        while True:
            try:
                made.append(self._graph.pull().to_ndarray()[0])
            except (NothingYet, NothingMore):
                return made
