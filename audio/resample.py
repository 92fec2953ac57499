"""Change the sample rate with a Hann-windowed sinc filter, equal to torchaudio's `Resample` at its defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

ZERO_CROSSINGS = 6
"""Half width of the filter in zero crossings of the sinc (torchaudio: lowpass_filter_width)."""
ROLLOFF = 0.99
"""Cut-off as a share of the lower Nyquist frequency."""
PHASES_PER_TILE = 64
MIN_PHASES = 32
"""Narrower products (48 kHz to 16 kHz has one phase) are slow, so several periods are taken as one."""
MAX_CACHED_PHASES = 1024
"""Filters of awkward rates (44,101 Hz) take tens of megabytes; keeping them would let uploads fill the memory."""


@dataclass(frozen=True, eq=False)
class _Tile:
    """Filters of neighbouring output phases; they read almost the same input samples, so they share one product."""

    phase: int
    start: int
    filters: np.ndarray  # [taps, phases] float32


def _filter_tiles(source: int, target: int, periods: int) -> tuple[int, tuple[_Tile, ...]]:
    """Padding on each side and the filter tiles for `periods` periods of the reduced rates `source` -> `target`.

    Only taps within the filter's support are stored. A dense table of all phases would need `source * target`
    entries, which is gigabytes when the rates share no divisor (44,101 Hz to 24,000 Hz).
    """
    cutoff = min(source, target) * ROLLOFF
    width = math.ceil(ZERO_CROSSINGS * source / cutoff)
    tiles = []
    for first in range(0, target * periods, PHASES_PER_TILE):
        phases = np.arange(first, min(first + PHASES_PER_TILE, target * periods))
        start = first * source // target - width
        stop = int(phases[-1]) * source // target + width + 1
        period, phase = np.divmod(phases, target)
        taps = np.arange(start, stop)[:, None] - period * source
        # torchaudio rounds the output's position to float32 before it continues in float64; so do we.
        position = (phase.astype(np.float32) / np.float32(target)).astype(np.float64)
        t = np.clip((taps / source - position) * cutoff, -ZERO_CROSSINGS, ZERO_CROSSINGS)
        window = np.cos(t * (math.pi / ZERO_CROSSINGS / 2)) ** 2
        filters = np.sinc(t) * window * (cutoff / source)
        tiles.append(_Tile(first, start + width, filters.astype(np.float32)))
    return width, tuple(tiles)


_cached_tiles = lru_cache(maxsize=8)(_filter_tiles)


def resample(samples: np.ndarray, source_rate: int, target_rate: int) -> np.ndarray:
    """Resample mono audio.

    samples: [L] float32. Returns [ceil(L * target_rate / source_rate)] float32; the input itself (no copy) when
    the rates are equal. Source: torchaudio.transforms.Resample (sinc_interp_hann, width 6, roll-off 0.99).
    Raises ValueError for rates below 1 Hz or input that is not one-dimensional.
    """
    samples = np.asarray(samples, dtype=np.float32)
    if samples.ndim != 1:
        raise ValueError(f"expected mono audio of shape [L], got {list(samples.shape)}")
    if source_rate < 1 or target_rate < 1:
        raise ValueError(f"sample rates must be positive, got {source_rate} and {target_rate}")
    if source_rate == target_rate:
        return samples
    divisor = math.gcd(source_rate, target_rate)
    source, target = source_rate // divisor, target_rate // divisor
    length = -(-samples.size * target // source)
    periods = -(-MIN_PHASES // target)
    build = _cached_tiles if target <= MAX_CACHED_PHASES else _filter_tiles
    width, tiles = build(source, target, periods)
    source, target = source * periods, target * periods
    frames = -(-length // target)
    padded = np.zeros(width + frames * source + width + 1, dtype=np.float32)
    kept = min(samples.size, padded.size - width)
    padded[width : width + kept] = samples[:kept]
    out = np.empty((frames, target), dtype=np.float32)
    step = padded.strides[0]
    for tile in tiles:
        taps, phases = tile.filters.shape
        reads = as_strided(padded[tile.start :], shape=(frames, taps), strides=(source * step, step), writeable=False)
        out[:, tile.phase : tile.phase + phases] = np.ascontiguousarray(reads) @ tile.filters
    return out.reshape(-1)[:length]
