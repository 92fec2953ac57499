"""The vocoder is upstream's HiFTGenerator (CosyVoice 2) and CausalHiFTGenerator (3), stage by stage."""

from __future__ import annotations

import functools
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.cfm import MAX_FRAMES
from models.config import load_config
from models.errors import ModelError
from models.hift import Vocoder
from models.hift_layers import Conv, ShortTimeFourier
from models.hift_source import FixedNoise, serial_normal
from models.hift_stream import Carry
from tests.golden import golden
from tests.models.flow_stages import array, close

SEED = {"hift": 4321, "hift.cached": 4322}
# A pitch of 237 Hz has a rounding step of 1.5e-5 in float32, and convolutions add up in another order on another CPU:
# float64 arithmetic is 2e-4 Hz from the golden values too. In the waveform that is a phase error that grows with time.
# So the chain is compared loosely, and from golden pitch and golden source on within 1e-5.
PITCH_ROUNDING = 5e-4
CHAIN_ROUNDING = 1e-4


@functools.cache
def tiny_vocoder(version: int) -> Vocoder:
    return Vocoder.load(load_config(golden(version).dir))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mel(version: int) -> Tensor:
    return array(version, "hift.mel")[0]


def test_v2_pitch() -> None:
    with torch.inference_mode():
        assert close(tiny_vocoder(2).pitch(mel(2)[None]), array(2, "hift.f0"), PITCH_ROUNDING)


def test_v2_source_from_the_pitch() -> None:
    f0, source = array(2, "hift.f0"), tiny_vocoder(2).m_source
    with torch.inference_mode():
        ours = source(f0, source.noise(f0.shape[1], generator(SEED["hift"]))[None])
    assert close(ours, array(2, "hift.source")[0])


@pytest.mark.parametrize(("case", "start"), [("hift", 0), ("hift.cached", 20)])
def test_v2_waveform_from_the_source(case: str, start: int) -> None:
    with torch.inference_mode():
        wave = tiny_vocoder(2).decode(mel(2)[None, :, start:], array(2, f"{case}.source")[0])
    assert close(wave, array(2, f"{case}.wav"))


@pytest.mark.parametrize(("case", "start"), [("hift", 0), ("hift.cached", 20)])
def test_v2_waveform_from_the_mel(case: str, start: int) -> None:
    cached = array(2, "hift.source")[0, 0, 9600:13440] if start else None
    [(wave, source)] = tiny_vocoder(2).inference([mel(2)[:, start:]], [generator(SEED[case])], [cached])
    if cached is not None:
        assert torch.equal(source[: len(cached)], cached)
    assert close(source, array(2, f"{case}.source")[0, 0], 5 * CHAIN_ROUNDING)
    assert close(wave, array(2, f"{case}.wav")[0], CHAIN_ROUNDING)


def test_v2_noise_is_what_torch_draws() -> None:
    expected = array(2, "hift.sine_noise")[0].T
    draws = generator(SEED["hift"])
    assert close(torch.rand(1, 9, generator=draws)[:, 1:], array(2, "hift.rand_ini")[:, 1:], 0.0)
    assert close(serial_normal(expected.numel(), draws).view(expected.shape), expected)


@pytest.mark.parametrize(("case", "final"), [("hift", True), ("hift.nofinal", False)])
def test_v3_pitch_source_and_waveform(case: str, final: bool) -> None:
    vocoder, carry = tiny_vocoder(3), Carry(final=final)
    with torch.inference_mode():
        f0 = vocoder.pitch(mel(3)[None], carry)
        assert close(f0, array(3, f"{case}.f0"), 1e-9)
        source = vocoder.m_source(f0.float(), vocoder.m_source.noise(f0.shape[1])[None], carry)
    assert close(source, array(3, f"{case}.source")[0])
    [(wave, _)] = vocoder.stream([mel(3)], [vocoder.new_state()], [final])
    assert close(wave, array(3, f"{case}.wav")[0])


def test_v3_waveform_and_source_from_the_mel() -> None:
    [(wave, source)] = tiny_vocoder(3).inference([mel(3)])
    assert close(source, array(3, "hift.source")[0, 0])
    assert close(wave, array(3, "hift.wav")[0])


@pytest.mark.parametrize("version", [2, 3])
def test_a_batch_of_mixed_lengths_is_each_mel_alone(version: int) -> None:
    vocoder = tiny_vocoder(version)
    mels = [mel(version)[:, start:stop] for start, stop in ((0, 40), (3, 30), (20, 60), (10, 50), (4, 31), (7, 8))]
    cached = [None, torch.full((960,), 0.1), torch.full((480,), -0.1), None, None, None]
    together = vocoder.inference(mels, [generator(seed) for seed in range(6)], cached)
    for seed, (wave, source) in enumerate(together):
        [(alone, its_source)] = vocoder.inference([mels[seed]], [generator(seed)], [cached[seed]])
        assert close(source, its_source, 1e-7)
        assert close(wave, alone)
        assert len(wave) == mels[seed].shape[1] * vocoder.upsample


@pytest.mark.parametrize("version", [2, 3])
def test_the_pitch_of_a_batch_is_that_of_each_mel(version: int) -> None:
    """The phase adds the pitch up over an utterance: rounding that depends on the batch would be heard."""
    vocoder = tiny_vocoder(version)
    mels = torch.stack([mel(version)[:, start : start + 40] for start in (0, 7, 20)])
    carry = Carry(final=True) if vocoder.causal else None
    with torch.inference_mode():
        together = vocoder.pitch(mels, carry).float()
        alone = torch.cat([vocoder.pitch(item[None], carry).float() for item in mels])
    assert torch.equal(together, alone)


def test_v3_noise_starts_like_the_golden_noise_however_it_is_drawn() -> None:
    config = load_config(golden(3).dir)
    noise = FixedNoise.of_model(config.flow, config.hift, [4, 3, 3, 3, 3], 480)
    pieces = [noise.draw(10_000), noise.draw(18_800)]
    assert torch.equal(torch.cat(pieces), array(3, "hift.sine_noise_first")[0])


GENUINE: tuple[Mapping[str, Any], Mapping[str, Any], str] = (
    {"output_size": 80, "vocab_size": 6561, "input_size": 80, "spk_embed_dim": 192},
    {"nb_harmonics": 8, "f0_predictor": {"in_channels": 80, "cond_channels": 512}},
    # Of the noise that the genuine model's classes draw.
    "2f60f92217f65e9f2728d4e662f520432603d88e7a24f78666cc88bb76247f61",
)


@pytest.mark.parametrize("size", ["tiny", "genuine"])
def test_v3_noise_is_the_whole_of_upstreams(size: str) -> None:
    flow, hift, expected = GENUINE
    if size == "tiny":
        config = load_config(golden(3).dir)
        flow, hift, expected = config.flow, config.hift, golden(3).meta["hift_noise"]["sine_waves_sha256"]
    noise = FixedNoise.of_model(flow, hift, [4, 3, 3, 3, 3], 480)
    digest = hashlib.sha256()
    for _ in range(MAX_FRAMES // 500):
        digest.update(noise.draw(500 * 480).numpy().tobytes())
    assert digest.hexdigest() == expected


def test_v3_noise_is_kept_as_it_grows_and_bounded() -> None:
    source = tiny_vocoder(3).m_source
    fixed = source.fixed_noise
    assert fixed is not None
    weight = source.l_linear.weight
    with torch.inference_mode():
        short = fixed.merged(1_000, weight).clone()
        long = fixed.merged(700_000, weight).clone()
        assert torch.equal(long[:1_000], short)
        assert torch.equal(fixed.merged(3_000, weight, start=500_000), long[500_000:503_000])
        with pytest.raises(ModelError) as caught:
            fixed.merged(1_000, weight, start=fixed.max_samples - 999)
    assert caught.value.code == "model_input_invalid"


@pytest.mark.parametrize("version", [2, 3])
def test_every_spelling_of_a_checkpoint_is_the_same_vocoder(version: int, tmp_path: Path) -> None:
    source = golden(version).dir
    shutil.copy(source / f"cosyvoice{version}.yaml", tmp_path)
    state = torch.load(source / "hift.pt", weights_only=True)
    legacy = {
        "generator."
        + key.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for key, value in state.items()
    }
    assert set(legacy) != set(state)
    torch.save({**legacy, "epoch": 1, "step": 2}, tmp_path / "hift.pt")
    [(ours, _)] = Vocoder.load(load_config(tmp_path)).inference([mel(version)], [generator(1)])
    [(expected, _)] = tiny_vocoder(version).inference([mel(version)], [generator(1)])
    assert torch.equal(ours, expected)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("conv_post.bias", None, "checkpoint_missing_key"),
        ("conv_post.parametrizations.weight.original0", None, "checkpoint_missing_key"),
        ("f0_predictor.condnet.6.parametrizations.weight.original1", None, "checkpoint_missing_key"),
        ("ups.3.bias", torch.zeros(4), "checkpoint_extra_key"),
        ("source_downs.0.weight", torch.zeros(32, 18, 29), "checkpoint_shape"),
        ("resblocks.0.activations1.0.alpha", torch.zeros(32, dtype=torch.int64), "checkpoint_dtype"),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_a_wrong_key_is_named(version: int, key: str, value: Tensor | None, code: str, tmp_path: Path) -> None:
    source = golden(version).dir
    shutil.copy(source / f"cosyvoice{version}.yaml", tmp_path)
    state = torch.load(source / "hift.pt", weights_only=True)
    changed = {name: weight for name, weight in state.items() if name != key}
    if value is not None:
        changed[key] = value
    torch.save(changed, tmp_path / "hift.pt")
    with pytest.raises(ModelError) as caught:
        Vocoder.load(load_config(tmp_path))
    assert caught.value.code == code
    assert key.split(".parametrizations")[0] in caught.value.message
    assert "hift.pt" in caught.value.message


def test_the_short_time_fourier_pair_is_torchs() -> None:
    x = torch.randn(2, 480 * 3)
    window = torch.hann_window(16)
    spectrum = torch.stft(x, 16, 4, window=window, return_complex=True)
    ours = ShortTimeFourier(16, 4)
    assert close(ours.forward(x), torch.cat((spectrum.real, spectrum.imag), dim=1), 1e-5)
    magnitude, phase = torch.rand(2, 9, 361), 3 * torch.randn(2, 9, 361)
    expected = torch.istft(torch.polar(magnitude, phase), 16, 4, window=window)
    assert close(ours.inverse(magnitude, phase), expected, 1e-5)


@pytest.mark.parametrize(("left", "right"), [(18, 0), (0, 18), (9, 9), (0, 0)])
@pytest.mark.parametrize("width", [16, 24])  # in blocks of the CPU's width, and by taps
@pytest.mark.parametrize("length", [100, 20])
def test_a_convolution_of_any_width_is_torchs(width: int, left: int, right: int, length: int) -> None:
    conv = Conv(8, width, 7, (left, right), dilation=3)
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 8, length)
    padded = torch.nn.functional.pad(x, (left, right))
    expected = torch.nn.functional.conv1d(padded, conv.weight, conv.bias, dilation=3)
    with torch.inference_mode():
        assert close(conv(x), expected, 1e-4)
