"""The features that prompts are read through equal those of the genuine front end."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.config import MelConfig, load_config
from models.features import kaldi_fbank, mel_filters, prompt_mel, whisper_log_mel
from tests.golden import golden
from tests.models.prompt_arrays import compute_here, compute_reproducibly

FEATURES = ["fe.wav16k", "fe.wav24k", "fe.whisper_mel", "fe.fbank_raw", "fe.fbank", "fe.mel24k_raw"]
MEL_24K = MelConfig(n_fft=1920, num_mels=80, sampling_rate=24000, hop_size=480, win_size=1920, fmin=0.0, fmax=8000.0)


def tone(hz: float, sample_rate: int, seconds: float = 1.0) -> torch.Tensor:
    return 0.5 * torch.sin(2 * torch.pi * hz * torch.arange(int(seconds * sample_rate)) / sample_rate)[None]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", FEATURES)
def test_features_equal_the_golden_ones(version: int, name: str) -> None:
    expected = golden(version).array(name)
    found = compute_reproducibly(version)[name]
    assert found.shape == expected.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("name", "to_magnitude"),
    [
        ("fe.whisper_mel", lambda x: 10.0 ** ((4 * x - 4) / 2)),
        ("fe.fbank_raw", lambda x: np.exp(x / 2)),
        ("fe.mel24k_raw", np.exp),
    ],
)
def test_on_any_cpu_only_rounding_differs(version: int, name: str, to_magnitude) -> None:
    """As magnitudes, before the logarithm blows up what lies near the floor."""
    expected = to_magnitude(golden(version).array(name).astype(np.float64))
    found = to_magnitude(compute_here(version)[name].astype(np.float64))
    assert np.abs(found - expected).max() < 3e-6 * expected.max()


def test_whisper_mel_spans_eight_decades_of_its_own_utterance() -> None:
    generator = torch.Generator().manual_seed(0)
    quiet = torch.randn(1, 16000, generator=generator) * 1e-4
    loud = torch.cat([quiet, tone(440, 16000)], dim=1)
    mel = whisper_log_mel(loud)
    assert mel.shape == (1, 128, 200)
    assert mel.max() - mel.min() == pytest.approx(8 / 4, abs=1e-6)
    # A loud neighbour raises the floor of the quiet part: clips must never share a tensor.
    assert not torch.allclose(mel[..., :90], whisper_log_mel(quiet)[..., :90])


@pytest.mark.parametrize("samples", [400, 559, 560, 16000])
def test_fbank_keeps_whole_windows_only(samples: int) -> None:
    fbank = kaldi_fbank(torch.randn(samples, generator=torch.Generator().manual_seed(1)))
    assert fbank.shape == ((samples - 400) // 160 + 1, 80)
    assert fbank.mean(dim=0).abs().max() < 1e-5


def test_fbank_ignores_a_constant_offset() -> None:
    wav = torch.randn(8000, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(kaldi_fbank(wav), kaldi_fbank(wav + 0.5), atol=1e-2)


@pytest.mark.parametrize("samples", [24000, 24479, 24480])
def test_prompt_mel_has_a_frame_per_hop(samples: int) -> None:
    assert prompt_mel(torch.zeros(samples), MEL_24K).shape == (samples // 480, 80)


def test_prompt_mel_of_silence_is_the_floor() -> None:
    floor = prompt_mel(torch.zeros(24000), MEL_24K)
    assert torch.isfinite(floor).all() and floor.min() >= np.log(1e-5) - 1e-6


def test_versions_hear_a_different_range_in_one_process() -> None:
    two, three = (load_config(golden(version).dir).mel for version in (2, 3))
    high = tone(10000, 24000)
    assert (two.fmax, three.fmax) == (8000.0, None)
    assert prompt_mel(high, two).exp().max() < 0.1 * prompt_mel(high, three).exp().max()


@pytest.mark.parametrize("shape", [(16000, 400, 128, 0.0, None), (24000, 1920, 80, 0.0, 8000.0)])
def test_mel_filters_have_unit_area(shape: tuple[int, int, int, float, float | None]) -> None:
    filters = mel_filters(*shape)
    rate, n_fft, mels = shape[:3]
    assert filters.shape == (mels, n_fft // 2 + 1) and filters.min() == 0
    wide = filters[-20:]  # the narrow ones are sampled too coarsely to show it
    torch.testing.assert_close(wide.sum(dim=1) * rate / n_fft, torch.ones(20), rtol=0, atol=0.02)
    assert (filters.argmax(dim=1).diff() >= 0).all()
