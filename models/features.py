"""What the prompt's networks hear: Whisper log-mel, Kaldi filter bank energies and the flow's mel, in torch.

All three are computed in float32 with torch's own transforms so that they stay near bit-equal to upstream's.
Every normalisation is per utterance, so prompts are never batched here.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from models.config import MelConfig

PROMPT_RATE = 16_000
"""Sample rate that speech tokenizer and speaker encoder expect, Hz."""

_WHISPER_FFT, _WHISPER_HOP, _WHISPER_MELS = 400, 160, 128
_WHISPER_RANGE = 8.0
"""Whisper keeps 8 decades (80 dB) below the loudest point of the utterance."""

_KALDI_WINDOW, _KALDI_HOP, _KALDI_FFT, _KALDI_MELS = 400, 160, 512, 80
_KALDI_LOW_HZ = 20.0
_KALDI_PREEMPHASIS = 0.97
_KALDI_FLOOR = torch.finfo(torch.float32).eps


def whisper_log_mel(wav16k: Tensor) -> Tensor:
    """The speech tokenizer's input, equal to openai-whisper's `log_mel_spectrogram(n_mels=128)`.

    wav16k: [1, L] float32 at 16 kHz, L > 200. Returns [1, 128, L // 160], 100 frames per second: log10 power, at
    most 8 below the utterance's maximum, then (x + 4) / 4. The maximum is global, hence one utterance at a time.
    """
    spectrum = torch.stft(wav16k, _WHISPER_FFT, _WHISPER_HOP, window=_hann(_WHISPER_FFT), return_complex=True)
    power = spectrum[..., :-1].abs() ** 2
    mel = mel_filters(PROMPT_RATE, _WHISPER_FFT, _WHISPER_MELS, 0.0, None) @ power
    log_mel = mel.clamp(min=1e-10).log10()
    log_mel = torch.maximum(log_mel, log_mel.max() - _WHISPER_RANGE)
    return (log_mel + 4.0) / 4.0


def kaldi_fbank(wav16k: Tensor, *, subtract_mean: bool = True) -> Tensor:
    """The speaker encoder's input, equal to torchaudio's `kaldi.fbank(num_mel_bins=80, dither=0)`.

    wav16k: [L] or [1, L] float32 at 16 kHz, full scale 1.0, L >= 400. Returns [(L - 400) // 160 + 1, 80]: ln
    energies, by default minus their mean over the utterance (as CAM++ expects).
    """
    frames = wav16k.reshape(-1).unfold(0, _KALDI_WINDOW, _KALDI_HOP)
    frames = frames - frames.mean(dim=1, keepdim=True)
    previous = functional.pad(frames.unsqueeze(0), (1, 0), mode="replicate").squeeze(0)[:, :-1]
    frames = (frames - _KALDI_PREEMPHASIS * previous) * _povey_window()
    power = torch.fft.rfft(frames, _KALDI_FFT).abs() ** 2
    energies = (power @ _kaldi_filters().T).clamp(min=_KALDI_FLOOR).log()
    return energies - energies.mean(dim=0, keepdim=True) if subtract_mean else energies


def prompt_mel(wav: Tensor, config: MelConfig) -> Tensor:
    """The flow's prompt, equal to Matcha-TTS's `mel_spectrogram(center=False)`.

    wav: [L] or [1, L] float32 at `config.sampling_rate`, longer than (n_fft - hop) / 2. Returns
    [L // hop, num_mels]: ln magnitude, floored at 1e-5.
    """
    margin = (config.n_fft - config.hop_size) // 2
    padded = functional.pad(wav.reshape(1, 1, -1), (margin, margin), mode="reflect").squeeze(1)
    spectrum = torch.stft(
        padded,
        config.n_fft,
        config.hop_size,
        config.win_size,
        window=_hann(config.win_size),
        center=False,
        return_complex=True,
    )
    magnitude = torch.view_as_real(spectrum).pow(2).sum(-1).add(1e-9).sqrt()
    filters = mel_filters(config.sampling_rate, config.n_fft, config.num_mels, config.fmin, config.fmax)
    return (filters @ magnitude).clamp(min=1e-5).log().squeeze(0).T.contiguous()


@lru_cache(maxsize=16)
def _hann(length: int) -> Tensor:
    return torch.hann_window(length)


@lru_cache(maxsize=1)
def _povey_window() -> Tensor:
    """Kaldi's own window: a Hann window that reaches zero at both ends, to the power 0.85."""
    return torch.hann_window(_KALDI_WINDOW, periodic=False).pow(0.85)


def _slaney_mel(hz: np.ndarray) -> np.ndarray:
    """Slaney's Auditory Toolbox scale: 3 mel per 200 Hz up to 1 kHz, above it 27 mel per factor 6.4."""
    linear = hz * 3.0 / 200.0
    logarithmic = 15.0 + np.log(np.maximum(hz, 1e-10) / 1000.0) * (27.0 / math.log(6.4))
    return np.where(hz < 1000.0, linear, logarithmic)


def _slaney_hz(mel: np.ndarray) -> np.ndarray:
    return np.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * np.exp((mel - 15.0) * (math.log(6.4) / 27.0)))


@lru_cache(maxsize=16)
def mel_filters(sample_rate: int, n_fft: int, mels: int, low_hz: float, high_hz: float | None) -> Tensor:
    """Triangular filters of unit area on Slaney's mel scale, equal to `librosa.filters.mel`.

    Returns [mels, n_fft // 2 + 1] float32, to be applied to a power or magnitude spectrum. `high_hz` None: up to
    half the sample rate. Cached by all of its arguments; treat the result as read-only.
    """
    bins = np.linspace(0.0, sample_rate / 2, n_fft // 2 + 1)
    ends = _slaney_mel(np.array([low_hz, sample_rate / 2 if high_hz is None else high_hz]))
    edges = _slaney_hz(np.linspace(ends[0], ends[1], mels + 2))
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    area = 2.0 / (edges[2:] - edges[:-2])
    return torch.from_numpy((triangles * area[:, None]).astype(np.float32))


@lru_cache(maxsize=1)
def _kaldi_filters() -> Tensor:
    """Kaldi's triangles, straight in the mel domain and of unit height: [80, 257]; the Nyquist bin counts nothing."""
    bins = torch.arange(_KALDI_FFT // 2) * (PROMPT_RATE / _KALDI_FFT)
    low, high = (1127.0 * math.log(1.0 + hz / 700.0) for hz in (_KALDI_LOW_HZ, PROMPT_RATE / 2))
    step = (high - low) / (_KALDI_MELS + 1)
    # Float32 edges and slopes from their differences, as in torchaudio: narrow filters show the rounding.
    index = torch.arange(_KALDI_MELS).unsqueeze(1)
    left, centre, right = (low + (index + offset) * step for offset in (0.0, 1.0, 2.0))
    mel = 1127.0 * (1.0 + bins / 700.0).log()
    rising = (mel - left) / (centre - left)
    falling = (right - mel) / (right - centre)
    return functional.pad(torch.minimum(rising, falling).clamp(min=0.0), (0, 1))
