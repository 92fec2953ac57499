"""Tokens become upstream's waveform in every mode, whole and streamed, and a stream owns its state."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.conditioning import Conditioning, load_presets
from models.config import load_config
from models.errors import ModelError
from models.flow import Flow
from models.hift import Vocoder
from models.speed import SpeedResampler
from models.token2wav import Audio, Token2Wav, Turn, VoicePrompt
from models.voice_prefixes import VoicePrefixes
from tests.golden import golden
from tests.runners.engine import same_audio

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


def said(token2wav: Token2Wav, turn: Turn) -> Audio:
    (audio,) = token2wav.synthesize([turn])
    if isinstance(audio, Exception):
        raise audio
    return audio


def whole(token2wav: Token2Wav, tokens: list[int], voice: VoicePrompt, speed: float = 1.0) -> Tensor:
    return said(token2wav, token2wav.whole(tokens, voice, speed=speed, rng=golden_rng)).samples


def stream(
    token2wav: Token2Wav, voice: VoicePrompt, tokens: list[int], speed: float = 1.0, upstream_compat: bool = False
) -> tuple[list[Tensor], list[list[int]]]:
    """The pieces, and upstream's record of the calls: (tokens, offset, streaming, finalize)."""
    state = token2wav.new_stream(voice, speed=speed, rng=golden_rng, upstream_compat=upstream_compat)
    pieces, calls = [], []
    while len(tokens) >= token2wav.next_hop(state):
        calls.append([token2wav.next_hop(state), state.offset, True, False])
        audio = said(token2wav, Turn(state, tokens, last=False))
        pieces.append(audio.samples)
        state = audio.state
    calls.append([len(tokens), state.offset, False, True])
    pieces.append(said(token2wav, Turn(state, tokens, last=True)).samples)
    return pieces, calls


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [2, 3])
def test_the_waveform_is_upstreams(version: int, case: str) -> None:
    gold, token2wav, tokens = golden(version), tiny(version), tokens_of(version, case)
    expected = torch.from_numpy(gold.array(f"e2e.{case}.wav")[0])
    if case.endswith("stream"):
        pieces, calls = stream(token2wav, prompt(version, case), tokens, upstream_compat=True)
    else:
        speed = 1.3 if "speed" in case else 1.0
        pieces = [whole(token2wav, tokens, prompt(version, case), speed)]
        calls = [[len(tokens), 0, False, True]]
    assert calls == gold.meta["e2e"][case]["token2wav_calls(n_tokens,offset,stream,finalize)"]
    assert [len(piece) for piece in pieces] == gold.array(f"e2e.{case}.chunk_lens").tolist()
    error = (torch.cat(pieces) - expected).abs()
    assert error.max() <= WAVE_TOLERANCE
    assert error.mean() <= MEAN_TOLERANCE


@pytest.mark.parametrize("version", [2, 3])
def test_a_hop_needs_no_more_tokens_than_it_asks_for(version: int) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    late = early = token2wav.new_stream(prompt(version), rng=golden_rng)
    for _ in range(2):
        needed = token2wav.next_hop(early)
        one = said(token2wav, Turn(early, tokens[:needed], last=False))
        other = said(token2wav, Turn(late, tokens, last=False))
        assert torch.equal(one.samples, other.samples)
        early, late = one.state, other.state


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_a_turn_gives_the_same_alone_and_in_any_batch(version: int, seed: int) -> None:
    """Streams of several voices and lengths and whole utterances, put together at random."""
    token2wav, chance = tiny(version), random.Random(seed)
    voices = [prompt(version), prompt(version, "sft"), prompt(version, "vc")]
    texts = [tokens_of(version)[: chance.randint(20, 200)] for _ in range(5)]
    utterances = [Turn(token2wav.new_stream(chance.choice(voices), rng=golden_rng), text, last=False) for text in texts]
    wholes = [token2wav.whole(text, chance.choice(voices), rng=golden_rng) for text in texts[:2]]
    alone = [torch.cat(stream(token2wav, turn.state.prompt, list(turn.tokens))[0]) for turn in utterances]
    alone += [said(token2wav, turn).samples for turn in wholes]

    open_turns: dict[int, Turn] = dict(enumerate([*utterances, *wholes]))
    heard: dict[int, list[Tensor]] = {key: [] for key in open_turns}
    while open_turns:
        chosen = chance.sample(sorted(open_turns), chance.randint(1, len(open_turns)))
        turns = {}
        for key in chosen:
            turn = open_turns[key]
            last = key >= len(utterances) or len(turn.tokens) < token2wav.next_hop(turn.state)
            turns[key] = Turn(turn.state, turn.tokens, last)
        for (key, turn), audio in zip(turns.items(), token2wav.synthesize(list(turns.values())), strict=True):
            assert isinstance(audio, Audio)
            heard[key].append(audio.samples)
            open_turns[key] = Turn(audio.state, turn.tokens, last=False)
            if turn.last:
                del open_turns[key]
    for key, expected in enumerate(alone):
        assert same_audio(torch.cat(heard[key]), expected)


@pytest.mark.parametrize("stage", ["flow", "vocoder"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_turn_that_fails_leaves_the_others_and_its_state_as_they_were(
    version: int, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    first = said(token2wav, Turn(token2wav.new_stream(prompt(version), rng=golden_rng), tokens, last=False)).state
    turns = [Turn(first, tokens, last=False) for _ in range(3)]
    expected = said(token2wav, turns[0])
    owner, name = (token2wav.flow, "inference") if stage == "flow" else (token2wav, "_vocode")
    original = getattr(owner, name)

    calls = []

    def fails_for_the_second(items):
        calls.append(len(items))
        if len(calls) in (1, 3):  # all together, then the second by itself
            raise MemoryError("injected")
        return original(items)

    monkeypatch.setattr(owner, name, fails_for_the_second)
    results = token2wav.synthesize(turns)
    assert calls == [3, 1, 1, 1]
    assert isinstance(results[1], MemoryError)
    for index in (0, 2):
        audio = results[index]
        assert isinstance(audio, Audio)
        assert same_audio(audio.samples, expected.samples)
    monkeypatch.undo()
    assert torch.equal(said(token2wav, turns[1]).samples, expected.samples)


@pytest.mark.parametrize("version", [2, 3])
def test_a_voice_that_is_known_costs_its_prompt_no_more(version: int) -> None:
    config = load_config(golden(version).dir)
    token2wav = Token2Wav(config, tiny(version).flow, tiny(version).vocoder, voice_bytes=1 << 30)
    frames: list[int] = []
    inference = token2wav.flow.inference

    def spy(pieces):
        frames.append(sum(2 * len(piece.tokens) for piece in pieces))
        return inference(pieces)

    tokens, voice = tokens_of(version), prompt(version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token2wav.flow, "inference", spy)
        first, _ = stream(token2wav, voice, tokens)
        cold = list(frames)
        again, _ = stream(token2wav, replace(voice), tokens)
    assert cold[0] == 100  # the prompt's two settled chunks
    assert frames[len(cold) :] == cold[1:]
    assert torch.equal(torch.cat(first), torch.cat(again))


def test_voices_are_kept_within_a_number_of_bytes() -> None:
    token2wav = tiny(2)
    ((_, prefix),) = token2wav.flow.inference([token2wav._prompt_piece(prompt(2))])
    voices = VoicePrefixes(2 * prefix.bytes)
    for name in (b"a", b"b"):
        voices.put(name, prefix)
    assert voices.get(b"a") is prefix
    voices.put(b"c", prefix)
    assert voices.get(b"b") is None  # the least recently used
    assert voices.get(b"a") is prefix
    assert voices.bytes == 2 * prefix.bytes
    none = VoicePrefixes(prefix.bytes - 1)
    none.put(b"a", prefix)
    assert none.get(b"a") is None


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_stream_keeps_is_what_was_said(version: int) -> None:
    token2wav = Token2Wav(load_config(golden(version).dir), tiny(version).flow, tiny(version).vocoder, window_chunks=2)
    tokens, voice = tokens_of(version), prompt(version)
    state = token2wav.new_stream(voice, rng=golden_rng, expected_tokens=len(tokens))
    announced = token2wav.stream_bytes(voice, len(tokens))
    while len(tokens) >= token2wav.next_hop(state):
        state = said(token2wav, Turn(state, tokens, last=False)).state
        assert state.prefix is not None
        inputs = sum(tensor.nbytes for memory in state.prefix.memories for tensor in memory.inputs)
        assert state.prefix.bytes - inputs == announced  # from the first hop on


@pytest.mark.parametrize("version", [2, 3])
def test_the_last_hop_makes_no_ring_anew(version: int) -> None:
    token2wav = Token2Wav(load_config(golden(version).dir), tiny(version).flow, tiny(version).vocoder, window_chunks=1)
    voice = prompt(version)
    state = token2wav.new_stream(voice, rng=golden_rng, expected_tokens=1000)
    tokens = tokens_of(version) * 20
    while state.hops < 7:
        state = said(token2wav, Turn(state, tokens, last=False)).state
    assert state.prefix is not None
    rings = [held.ring for held in state.prefix.memories[-1].attended]
    longest = tokens[: token2wav.next_hop(state) - 1]
    said(token2wav, Turn(state, longest, last=True))
    assert all(ring.end > state.prefix.memories[-1].frames for ring in rings)


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("version", [2, 3])
def test_an_utterance_shorter_than_a_hop_is_one_piece(version: int, count: int) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)[:count]
    pieces, _ = stream(token2wav, prompt(version), tokens)
    at_once = whole(token2wav, tokens, prompt(version))
    assert len(at_once) == count * 960
    assert torch.equal(torch.cat(pieces), at_once)


@pytest.mark.parametrize("version", [2, 3])
def test_no_tokens_are_no_samples(version: int) -> None:
    token2wav = tiny(version)
    assert len(whole(token2wav, [], prompt(version))) == 0


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.3, 2.0, 4.0])
@pytest.mark.parametrize("version", [2, 3])
def test_speed_holds_while_streaming(version: int, speed: float) -> None:
    token2wav, tokens = tiny(version), tokens_of(version)
    pieces, _ = stream(token2wav, prompt(version), tokens, speed)
    assert len(pieces) > 3
    assert all(len(piece) for piece in pieces)
    assert all(bool(piece.isfinite().all()) for piece in pieces)
    at_once = whole(token2wav, tokens, prompt(version), speed)
    assert abs(sum(map(len, pieces)) - len(at_once)) <= 480
    assert len(at_once) == int(400 / speed) * 480


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
    wave = whole(token2wav, tokens_of(2)[:20], prompt(2))
    assert not wave.isfinite().any()
