"""Tokens become upstream's waveform in every mode, whole and streamed, and a stream owns its state."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from models.conditioning import Conditioning, load_presets
from models.config import load_config
from models.errors import ModelError
from models.flow import Flow
from models.hift import Vocoder
from models.speed import SpeedResampler
from models.token2wav import StreamState, Token2Wav, VoicePrompt
from tests.golden import golden

CASES = [
    "zero_shot",
    "zero_shot_stream",
    "zero_shot_speed1.3",
    "cross_lingual",
    "instruct2",
    "vc",
    "vc_stream",
    "sft",
    "zero_shot_spkid",
]
# Equal arithmetic in another order changes the mel by 1e-6; the phase of the harmonics, which adds up over the whole
# utterance, turns that into up to 9e-4 of the waveform (of a peak of 0.1). Adding 1e-6 of noise to a golden mel does
# the same. Mel and vocoder by themselves are compared within 1e-5.
WAVE_TOLERANCE = 1e-3
MEAN_TOLERANCE = 5e-5


@functools.cache
def tiny(version: int) -> Token2Wav:
    config = load_config(golden(version).dir)
    return Token2Wav(config, Flow.load(config), Vocoder.load(config))


def conditioning(version: int, case: str) -> Conditioning:
    gold = golden(version)
    presets = {"sft": "spk_a", "zero_shot_spkid": "zs_b"}
    if case in presets:
        return load_presets(gold.dir / "spk2info.pt", load_config(gold.dir))[presets[case]]
    # Upstream's voice conversion leaves prompt tokens and mel as they were extracted, not cut to fit each other.
    tokens, mel = ("zs.flow_prompt_speech_token", "zs.prompt_speech_feat")
    if case.startswith("vc"):
        tokens, mel = ("fe.speech_token_raw", "fe.mel24k_raw")
    return Conditioning(gold.array("zs.flow_embedding")[0], gold.array(tokens)[0], gold.array(mel)[0])


def prompt(version: int, case: str = "zero_shot") -> VoicePrompt:
    return tiny(version).prompt(conditioning(version, case))


def tokens_of(version: int, case: str = "zero_shot") -> list[int]:
    return golden(version).array(f"e2e.{case}.tokens")[0].tolist()


def golden_rng(call: int) -> torch.Generator:
    return torch.Generator().manual_seed(9000 + call)


def stream(
    token2wav: Token2Wav, voice: VoicePrompt, tokens: list[int], speed: float = 1.0
) -> tuple[list[Tensor], list[list[int]]]:
    """The pieces, and upstream's record of the calls: (tokens, offset, streaming, finalize)."""
    state = token2wav.new_stream(voice, speed=speed, rng=golden_rng)
    pieces, calls = [], []
    while len(tokens) >= token2wav.next_hop(state):
        calls.append([token2wav.next_hop(state), state.offset, True, False])
        pieces.append(token2wav.hop(state, tokens))
    calls.append([len(tokens), state.offset, False, True])
    pieces.append(token2wav.final(state, tokens))
    return pieces, calls


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [2, 3])
def test_the_waveform_is_upstreams(version: int, case: str) -> None:
    gold, token2wav, tokens = golden(version), tiny(version), tokens_of(version, case)
    expected = torch.from_numpy(gold.array(f"e2e.{case}.wav")[0])
    if case.endswith("stream"):
        pieces, calls = stream(token2wav, prompt(version, case), tokens)
    else:
        speed = 1.3 if "speed" in case else 1.0
        pieces = [token2wav.whole(tokens, prompt(version, case), speed=speed, rng=golden_rng)]
        calls = [[len(tokens), 0, False, True]]
    assert calls == gold.meta["e2e"][case]["token2wav_calls(n_tokens,offset,stream,finalize)"]
    assert [len(piece) for piece in pieces] == gold.array(f"e2e.{case}.chunk_lens").tolist()
    error = (torch.cat(pieces) - expected).abs()
    assert error.max() <= WAVE_TOLERANCE
    assert error.mean() <= MEAN_TOLERANCE


@pytest.mark.parametrize("version", [2, 3])
def test_a_hop_needs_no_more_tokens_than_it_asks_for(version: int) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    late = token2wav.new_stream(prompt(version), rng=golden_rng)
    early = token2wav.new_stream(prompt(version), rng=golden_rng)
    for _ in range(2):
        needed = token2wav.next_hop(early)
        with pytest.raises(ModelError):
            token2wav.hop(early, tokens[: needed - 1])
        assert torch.equal(token2wav.hop(early, tokens[:needed]), token2wav.hop(late, tokens))


@pytest.mark.parametrize("version", [2, 3])
def test_interleaved_streams_do_not_disturb_each_other(version: int) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    other = tokens[::-1][:120]
    alone = [torch.cat(stream(token2wav, prompt(version), each)[0]) for each in (tokens, other)]
    states = [token2wav.new_stream(prompt(version), rng=golden_rng) for _ in range(2)]
    pieces: list[list[Tensor]] = [[], []]
    for _ in range(3):
        for index, each in enumerate((tokens, other)):
            if len(each) >= token2wav.next_hop(states[index]):
                pieces[index].append(token2wav.hop(states[index], each))
    for index, each in enumerate((tokens, other)):
        pieces[index].append(token2wav.final(states[index], each))
        assert torch.equal(torch.cat(pieces[index]), alone[index])


def test_a_new_stream_starts_with_a_short_hop_whatever_ran_before() -> None:
    token2wav, voice = tiny(2), prompt(2, "sft")
    stream(token2wav, voice, tokens_of(2))
    state: StreamState = token2wav.new_stream(voice, rng=golden_rng)
    assert token2wav.next_hop(state) == 25 + 3


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("version", [2, 3])
def test_an_utterance_shorter_than_a_hop_is_one_piece(version: int, count: int) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)[:count]
    pieces, _ = stream(token2wav, prompt(version), tokens)
    whole = token2wav.whole(tokens, prompt(version), rng=golden_rng)
    assert len(whole) == count * 960
    assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.parametrize("version", [2, 3])
def test_no_tokens_are_no_samples(version: int) -> None:
    token2wav = tiny(version)
    assert len(token2wav.whole([], prompt(version), rng=golden_rng)) == 0
    assert len(token2wav.final(token2wav.new_stream(prompt(version), rng=golden_rng), [])) == 0


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("version", [2, 3])
def test_speed_holds_while_streaming(version: int, speed: float) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    pieces, _ = stream(token2wav, prompt(version), tokens, speed)
    assert len(pieces) == 4
    assert all(len(piece) for piece in pieces)
    assert all(bool(piece.isfinite().all()) for piece in pieces)
    whole = token2wav.whole(tokens, prompt(version), speed=speed, rng=golden_rng)
    assert abs(sum(map(len, pieces)) - len(whole)) <= 480
    assert len(whole) == int(400 / speed) * 480


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), 99.0])
def test_a_speed_that_cannot_be_streamed_is_refused(speed: float) -> None:
    with pytest.raises(ModelError) as caught:
        tiny(2).new_stream(prompt(2), speed=speed, rng=golden_rng)
    assert caught.value.code == "model_input_invalid"


@pytest.mark.parametrize("speed", [0.25, 0.9, 1.3, 2.0, 3.7])
@pytest.mark.parametrize("sizes", [(200,), (50, 100, 50), (1, 1, 1, 60, 7, 130), (199, 1)])
def test_resampled_pieces_are_the_resampled_whole(speed: float, sizes: tuple[int, ...]) -> None:
    mel = torch.randn(80, sum(sizes), generator=golden_rng(0))
    resampler = SpeedResampler(speed)
    pieces = mel.split(list(sizes), dim=1)
    out = torch.cat(
        [resampler.feed(piece, final=index == len(pieces) - 1) for index, piece in enumerate(pieces)], dim=1
    )
    position = ((torch.arange(out.shape[1], dtype=torch.float64) + 0.5) * speed - 0.5).clamp(0, mel.shape[1] - 1)
    left = position.long()
    share = (position - left).float()
    expected = torch.lerp(mel[:, left], mel[:, (left + 1).clamp(max=mel.shape[1] - 1)], share)
    assert abs(out.shape[1] - sum(sizes) / speed) <= 1
    assert (out - expected).abs().max() <= 1e-5


def test_weights_that_are_not_finite_show_in_the_samples() -> None:
    """Clamping must not turn nonsense into silence: the engine looks for samples that are not finite."""
    config = load_config(golden(2).dir)
    token2wav = Token2Wav(config, Flow.load(config), Vocoder.load(config))
    token2wav.flow.input_embedding.weight.data = torch.full_like(token2wav.flow.input_embedding.weight, torch.nan)
    wave = token2wav.whole(tokens_of(2)[:20], prompt(2), rng=golden_rng)
    assert not wave.isfinite().any()
