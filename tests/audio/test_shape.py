"""A shaped stream: the same samples however it is cut, exact durations, the pitch that was asked for, no clicks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio import shape
from audio.encode import encode_whole
from audio.errors import AudioError
from audio.shape import Shaper
from tests.audio.sounds import syllables, voice_like

RATES = [(24000, 8000), (24000, 16000), (22050, 24000), (24000, 44100), (24000, 44101), (24000, 48000), (24000, 23999)]
PITCHES = [0.5, 0.8, 1.12, 1.5, 2.0]


def shaped(shaper: Shaper, samples: np.ndarray, block: int) -> np.ndarray:
    blocks = [shaper.feed(samples[first : first + block]) for first in range(0, samples.size, block)]
    return np.concatenate([*blocks, shaper.end()])


def frequency(samples: np.ndarray, rate: int) -> float:
    """Hz of the strongest partial, by the peak of a windowed spectrum."""
    size = 2**19
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size), size))
    return float(spectrum.argmax() * rate / size)


def tone(hertz: float, seconds: float, rate: int = 24000) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def test_nothing_to_do_is_nothing_done() -> None:
    samples = voice_like(1)
    shaper = Shaper(24000, 24000)
    np.testing.assert_array_equal(shaper.feed(samples), samples)  # nothing is held back
    assert shaper.end().size == 0


@pytest.mark.parametrize(
    ("rates", "pitch"), [(rates, 1.0) for rates in RATES] + [((24000, 24000), pitch) for pitch in PITCHES]
)
def test_the_samples_do_not_depend_on_the_blocks(rates: tuple[int, int], pitch: float) -> None:
    samples = syllables(2, rates[0])
    whole, *others = (
        shaped(Shaper(*rates, 0.5, pitch, fade_in=True), samples, size) for size in (10**6, 7777, 480, 101)
    )
    assert whole.dtype == np.float32 and whole.size == round(samples.size * rates[1] / rates[0])
    for other in others:
        np.testing.assert_allclose(other, whole, rtol=0, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    rate_in=st.sampled_from([16000, 22050, 24000]),
    rate_out=st.integers(8000, 48000),
    pitch=st.floats(0.5, 2.0),
    lengths=st.lists(st.integers(0, 3000), max_size=6),
)
def test_the_duration_is_exact_and_never_ahead(rate_in: int, rate_out: int, pitch: float, lengths: list[int]) -> None:
    shaper = Shaper(rate_in, rate_out, pitch=pitch)
    fed = given = 0
    for length in lengths:
        fed += length
        given += shaper.feed(voice_like(0.2, rate_in)[:length]).size
        assert given <= round(fed * rate_out / rate_in)
    assert given + shaper.end().size == round(fed * rate_out / rate_in)


@pytest.mark.parametrize("rates", RATES)
def test_resampling_keeps_a_tone_clean(rates: tuple[int, int]) -> None:
    made = shaped(Shaper(*rates), tone(1000, 2, rates[0]), 4800)[rates[1] // 4 : -rates[1] // 4]
    phases = 2 * np.pi * 1000 * np.arange(made.size) / rates[1]
    basis = np.stack([np.sin(phases), np.cos(phases)], axis=1)
    fit, *_ = np.linalg.lstsq(basis, made.astype(np.float64), rcond=None)
    assert np.hypot(*fit) == pytest.approx(0.5, rel=1e-3)
    assert 20 * math.log10(0.5 / math.sqrt(2) / (made - basis @ fit).std()) > 90


def test_what_a_lower_rate_cannot_hold_is_gone() -> None:
    made = shaped(Shaper(24000, 8000), tone(5000, 1), 4800)
    assert np.abs(made[200:-200]).max() < 1e-3


@pytest.mark.parametrize("pitch", PITCHES)
def test_the_pitch_moves_and_the_duration_stays(pitch: float) -> None:
    made = shaped(Shaper(24000, 24000, pitch=pitch), tone(300, 2), 4800)
    assert frequency(made[4800:-4800], 24000) == pytest.approx(300 * pitch, rel=0.01)
    assert made[4800:-4800].std() == pytest.approx(0.5 / math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("pitch", PITCHES)
def test_words_stay_where_they_were(pitch: float) -> None:
    words = np.concatenate(
        [np.pad(syllables(0.5), (12000, 0)) for _ in range(4)]
    )  # from 0.5 s, 1.5 s, ... and to the end
    made = shaped(Shaper(24000, 24000, pitch=pitch), words, 4800)
    levels, expected = (np.abs(part).reshape(-1, 240).max(axis=1) > 0.02 for part in (made, words))
    starts, wanted = (np.flatnonzero(np.diff(part.astype(int)) == 1) for part in (levels, expected))
    for start in wanted[np.diff(wanted, prepend=-99) > 30]:
        assert np.abs(starts - start).min() <= 5  # 50 ms
    assert np.flatnonzero(levels)[-1] == pytest.approx(np.flatnonzero(expected)[-1], abs=5)


@pytest.mark.parametrize("pitch", PITCHES)
def test_a_change_of_pitch_holds_back_a_tenth_of_a_second(pitch: float) -> None:
    shaper = Shaper(24000, 24000, pitch=pitch)
    given = 0
    for second in range(1, 5):
        given += shaper.feed(syllables(1)).size
        assert second * 24000 - given <= 2640


@pytest.mark.parametrize(("rate", "pitch"), [(48000, 1.0), (16000, 1.0), (24000, 0.7), (24000, 1.6)])
def test_no_clicks_at_the_seams_of_blocks(rate: int, pitch: float) -> None:
    shaper = Shaper(24000, rate, pitch=pitch)
    samples = syllables(4)
    blocks = [shaper.feed(block) for block in np.split(samples, 8)]
    seams = np.cumsum([block.size for block in blocks])[:-1]
    jumps = np.abs(np.diff(np.concatenate(blocks)))
    usual = [jumps[max(0, seam - 500) : seam + 500].max() for seam in seams]
    own = np.abs(np.diff(samples)).max() * max(1, pitch) * 24000 / rate
    assert all(jumps[seam - 1] <= most for seam, most in zip(seams, usual, strict=True))
    assert jumps.max() < 1.5 * own


def test_the_fade_in_is_ten_milliseconds_of_the_first_block_only() -> None:
    samples = np.full(4800, 0.5, np.float32)
    blocks = [Shaper(24000, 24000, fade_in=True).feed(samples), Shaper(24000, 24000).feed(samples)]
    np.testing.assert_array_equal(blocks[1], samples)
    assert blocks[0][0] == 0 and (np.diff(blocks[0][:240]) > 0).all()
    np.testing.assert_array_equal(blocks[0][240:], samples[240:])
    shaper = Shaper(24000, 24000, fade_in=True)
    pieces = [shaper.feed(piece) for piece in np.split(samples, 48)]
    np.testing.assert_array_equal(np.concatenate(pieces), blocks[0])


def test_volume_is_a_gain_and_the_encoder_saturates() -> None:
    samples = voice_like(0.5)
    loud = shaped(Shaper(24000, 24000, volume=20.0), samples, 1000)
    np.testing.assert_allclose(loud, samples * 20, rtol=1e-6)
    assert np.abs(np.frombuffer(encode_whole("pcm", loud, 24000), "<i2").astype(int)).max() in (32767, 32768)
    assert not shaped(Shaper(24000, 24000, volume=0.0), samples, 1000).any()


def test_the_callers_samples_are_left_alone() -> None:
    samples = voice_like(0.1)
    before = samples.copy()
    Shaper(24000, 24000, volume=2.0, fade_in=True).feed(samples)
    np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize("rate_out", [24000, 48000])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_samples_are_refused(value: float, rate_out: int) -> None:
    with pytest.raises(AudioError) as error:
        Shaper(24000, rate_out).feed(np.array([0, value], np.float32))
    assert error.value.code == "nonfinite_audio"


@pytest.mark.parametrize(
    "bad",
    [
        *((0, 24000), (24000, 0), (24000, 24000, -1.0), (24000, 24000, math.nan)),
        *((24000, 24000, 1.0, 0.4), (24000, 24000, 1.0, 2.1), (24000, 24000, 1.0, math.nan)),
    ],
)
def test_values_out_of_range_are_errors(bad: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Shaper(*bad)


def test_only_mono_is_taken() -> None:
    with pytest.raises(ValueError, match="mono"):
        Shaper(24000, 48000).feed(np.zeros((2, 10), np.float32))


@pytest.mark.parametrize(("pitch", "pieces"), [(1.0, 1), (1.5, 100)])
def test_only_stretching_takes_a_block_in_pieces(pitch: float, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[int] = []
    push = shape._Filter._push

    def counted(self: shape._Filter, samples: np.ndarray) -> list[np.ndarray]:
        pushed.append(samples.size)
        return push(self, samples)

    monkeypatch.setattr(shape._Filter, "_push", counted)
    Shaper(24000, 48000, pitch=pitch).feed(voice_like(1))
    assert (len(pushed), sum(pushed)) == (pieces, 24000)
