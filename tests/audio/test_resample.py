"""Resampling equals torchaudio's, at any pair of rates, without gigabytes of filters."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from audio.decode import decode_audio
from audio.resample import resample
from tests.golden import golden


def directly(samples: np.ndarray, source: int, target: int) -> np.ndarray:
    """The windowed sinc sum for each output sample, in float64 (sinc_interp_hann, width 6, roll-off 0.99)."""
    cutoff = 0.99 * min(source, target)
    out = np.arange(-(-len(samples) * target // source))[:, None] / target
    t = cutoff * (np.arange(len(samples))[None] / source - out)
    window = np.where(np.abs(t) < 6, np.cos(np.pi * t / 12) ** 2, 0)
    return (np.sinc(t) * window * cutoff / source) @ samples.astype(np.float64)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("name", "rate"), [("fe.wav16k", 16000), ("fe.wav24k", 24000)])
def test_golden_prompt(version: int, name: str, rate: int) -> None:
    reference = golden(version)
    audio = decode_audio((reference.dir / "prompt.wav").read_bytes())
    np.testing.assert_allclose(
        resample(audio.samples, audio.sample_rate, rate), reference.array(name)[0], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (48000, 16000),
        (44100, 16000),
        (44100, 24000),
        (22050, 24000),
        (16000, 24000),
        (192000, 16000),
        (44101, 24000),
        (16001, 16000),
        (24000, 22050),
        (8000, 24000),
    ],
)
def test_any_pair_of_rates(source: int, target: int) -> None:
    """To -80 dB: torchaudio's float32 positions, which we share, show when the rates have no common divisor."""
    samples = np.random.default_rng(0).normal(0, 0.3, 1500).astype(np.float32)
    np.testing.assert_allclose(resample(samples, source, target), directly(samples, source, target), rtol=0, atol=1e-4)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 100, 441, 442])
def test_the_length_is_rounded_up(length: int) -> None:
    made = resample(np.ones(length, np.float32), 44100, 24000)
    assert made.dtype == np.float32 and made.shape == (math.ceil(length * 24000 / 44100),)


def test_equal_rates_change_nothing() -> None:
    samples = np.random.default_rng(0).normal(size=100).astype(np.float32)
    np.testing.assert_array_equal(resample(samples, 24000, 24000), samples)


def test_a_tone_above_the_new_limit_does_not_alias() -> None:
    tone = np.sin(2 * np.pi * 11000 * np.arange(48000) / 48000).astype(np.float32)
    assert np.abs(resample(tone, 48000, 16000)[100:-100]).max() < 5e-3  # -46 dB


def test_awkward_rates_take_bounded_memory() -> None:
    samples = np.zeros(191_999, np.float32)
    tracemalloc.start()
    resample(samples, 191_999, 24000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # a dense table of filters would take 18 GB


@pytest.mark.parametrize(("source", "target"), [(0, 16000), (16000, 0), (-1, 16000)])
def test_rates_must_be_positive(source: int, target: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        resample(np.zeros(10, np.float32), source, target)


def test_only_mono_is_taken() -> None:
    with pytest.raises(ValueError, match="mono"):
        resample(np.zeros((2, 10), np.float32), 16000, 24000)
