"""A stream of the causal vocoder is its whole mel's waveform, however it is cut and whoever shares the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.cfm import MAX_FRAMES
from models.errors import ModelError
from models.hift import Vocoder
from models.hift_layers import Conv
from models.hift_source import running_sum
from models.hift_stream import Carry, VocoderState
from tests.models.flow_stages import array, close
from tests.models.test_hift import tiny_vocoder

SIZES = (1, 2, 3, 7, 8, 9, 20, 50)


@pytest.fixture
def vocoder() -> Vocoder:
    return tiny_vocoder(3)


def random_mel(seed: int, frames: int) -> Tensor:
    """Frames of the golden mel in a random order: a voice with a pitch that jumps."""
    golden = array(3, "hift.mel")[0]
    order = torch.randint(golden.shape[1], (frames,), generator=torch.Generator().manual_seed(seed))
    return golden[:, order]


def cut(mel: Tensor, rng: random.Random) -> list[Tensor]:
    pieces = []
    while mel.shape[1]:
        size = rng.choice(SIZES)
        pieces.append(mel[:, :size])
        mel = mel[:, size:]
    return pieces


def whole(vocoder: Vocoder, mel: Tensor) -> Tensor:
    [(wave, _)] = vocoder.inference([mel])
    return wave


def streamed(vocoder: Vocoder, pieces: list[Tensor]) -> list[Tensor]:
    state, waves = vocoder.new_state(), []
    for index, piece in enumerate(pieces):
        [(wave, state)] = vocoder.stream([piece], [state], [index == len(pieces) - 1])
        waves.append(wave)
    return waves


@pytest.mark.parametrize("seed", range(8))
def test_pieces_are_the_whole(vocoder: Vocoder, seed: int) -> None:
    rng = random.Random(seed)
    mel = random_mel(seed, rng.randint(10, 250))
    pieces = cut(mel, rng)
    if seed % 3 == 0:
        pieces.append(mel[:, :0])  # the end may come without frames
    waves = streamed(vocoder, pieces)
    frames = 0
    for index, piece in enumerate(pieces):
        frames += piece.shape[1]
        held = 0 if index == len(pieces) - 1 else vocoder.delay
        assert sum(map(len, waves[: index + 1])) == max(0, frames - held) * vocoder.upsample
    assert close(torch.cat(waves), whole(vocoder, mel))


@pytest.mark.parametrize("frames", [1, 2, 8, 9, 10])
def test_frame_by_frame(vocoder: Vocoder, frames: int) -> None:
    mel = random_mel(0, frames)
    assert close(torch.cat(streamed(vocoder, list(mel.split(1, dim=1)))), whole(vocoder, mel))


def test_no_frames_are_no_samples(vocoder: Vocoder) -> None:
    nothing = random_mel(0, 0)
    assert [len(wave) for wave in streamed(vocoder, [nothing, nothing])] == [0, 0]
    first, later = random_mel(1, 20).split(10, dim=1)
    assert [len(wave) for wave in streamed(vocoder, [first, nothing, later])] == [960, 0, 18 * 480]


@pytest.mark.parametrize("seed", range(4))
def test_streams_that_join_and_leave_a_batch_are_each_their_whole(vocoder: Vocoder, seed: int) -> None:
    rng = random.Random(seed)
    mels = [random_mel(100 * seed + index, rng.randint(5, 150)) for index in range(7)]
    pieces = [cut(mel, rng) for mel in mels]
    states = [vocoder.new_state() for _ in mels]
    waves: list[list[Tensor]] = [[] for _ in mels]
    while live := [index for index, rest in enumerate(pieces) if rest]:
        batch = rng.sample(live, rng.randint(1, len(live)))
        given = [pieces[index].pop(0) for index in batch]
        answers = vocoder.stream(given, [states[index] for index in batch], [not pieces[index] for index in batch])
        for index, (wave, state) in zip(batch, answers, strict=True):
            waves[index].append(wave)
            states[index] = state
    for mel, mine in zip(mels, waves, strict=True):
        assert close(torch.cat(mine), whole(vocoder, mel))


def test_pieces_of_one_length_are_one_batch(vocoder: Vocoder) -> None:
    batches: list[tuple[int, ...]] = []
    hook = vocoder.f0_predictor.register_forward_hook(lambda _, given, __: batches.append(given[0].shape[::2]))
    try:
        mels = [random_mel(index, frames) for index, frames in enumerate((20, 30, 20, 3, 20))]
        answers = vocoder.stream(mels, [vocoder.new_state() for _ in mels], [False] * 5)
        assert sorted(batches) == [(1, 30), (3, 20)]  # three frames give nothing yet
        batches.clear()
        mels = [random_mel(index, 10) for index in range(5)]
        vocoder.stream(mels, [state for _, state in answers], [False] * 4 + [True])
        assert sorted(batches) == [(1, 10), (1, 13), (3, 10)]
    finally:
        hook.remove()


def test_a_state_stays_as_it_is(vocoder: Vocoder) -> None:
    mel = random_mel(5, 60)
    [(_, state)] = vocoder.stream([mel[:, :30]], [vocoder.new_state()], [False])
    kept = snapshot(state)
    [(once, _)], [(again, _)] = (vocoder.stream([mel[:, 30:]], [state], [True]) for _ in range(2))
    assert torch.equal(once, again)
    assert same(snapshot(state), kept)


@pytest.mark.parametrize("where", ["f0_predictor", "m_source", "resblocks.4", "conv_post"])
def test_a_fault_leaves_states_to_be_tried_again(vocoder: Vocoder, where: str) -> None:
    mels = [random_mel(seed, frames) for seed, frames in ((1, 60), (2, 60), (3, 47))]
    starts = [mel[:, :30] for mel in mels]
    begun = vocoder.stream(starts, [vocoder.new_state() for _ in mels], [False] * 3)
    states = [state for _, state in begun]
    kept = [snapshot(state) for state in states]
    rest = [mel[:, 30:] for mel in mels]
    with failing(vocoder.get_submodule(where), after=1), pytest.raises(ZeroDivisionError):
        vocoder.stream(rest, states, [True] * 3)
    for mel, piece, state, before, (start, _) in zip(mels, rest, states, kept, begun, strict=True):
        assert same(snapshot(state), before)
        [(wave, _)] = vocoder.stream([piece], [state], [True])
        assert close(torch.cat((start, wave)), whole(vocoder, mel))


def test_a_fault_while_noise_is_drawn_does_not_shift_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = tiny_vocoder(3).m_source.fixed_noise
    assert fixed is not None
    weight = tiny_vocoder(3).m_source.l_linear.weight
    expected = fixed.merged(300_000, weight).clone()
    fixed._merged = None
    fixed.merged(1_000, weight)
    draw = fixed.draw

    def drawn_in_vain(samples: int) -> Tensor:
        draw(samples)
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(fixed, "draw", drawn_in_vain)
        fixed.merged(300_000, weight)
    assert torch.equal(fixed.merged(300_000, weight), expected)


def test_a_piece_costs_its_own_frames_whatever_came_before(vocoder: Vocoder) -> None:
    mel = random_mel(7, 20 * 15)
    work, sizes, state = [], [], vocoder.new_state()
    with recorded_work(vocoder) as lengths:
        for piece in mel.split(15, dim=1):
            [(_, state)] = vocoder.stream([piece], [state], [False])
            work.append(list(lengths))
            sizes.append(state.bytes)
            lengths.clear()
        vocoder.stream([mel[:, :0]], [state], [True])
        final = list(lengths)
        lengths.clear()
        whole(vocoder, mel)
    assert work[1] == work[19]
    assert len(set(sizes)) == 1
    # Altogether every layer computes what it computes for the whole mel, once.
    assert [sum(each) for each in zip(*work, final, strict=True)] == lengths


def test_a_state_holds_nothing_but_its_own(vocoder: Vocoder) -> None:
    mels = [random_mel(seed, 40) for seed in range(3)]
    for _, state in vocoder.stream(mels, [vocoder.new_state() for _ in mels], [False] * 3):
        assert state.pitch is not None and state.signal is not None
        assert state.bytes == state.pitch.untyped_storage().nbytes() + state.signal.untyped_storage().nbytes()
    [(_, after)] = vocoder.stream([mels[0]], [state], [True])
    assert after.bytes == 0


def test_a_stream_longer_than_the_noise_is_refused(vocoder: Vocoder) -> None:
    [(_, state)] = vocoder.stream([random_mel(0, 40)], [vocoder.new_state()], [False])
    with pytest.raises(ModelError) as caught:
        vocoder.stream([random_mel(1, 40)], [replace(state, frames=MAX_FRAMES - 39)], [False])
    assert caught.value.code == "model_input_invalid"


def test_the_phase_of_pieces_is_the_wholes_to_the_bit() -> None:
    turns = torch.rand(2, 9, MAX_FRAMES, generator=torch.Generator().manual_seed(0))
    before, sums = None, []
    for piece in turns.split([1, 2, 4_000, 50, 5_947, 5_000], dim=2):
        carry = Carry(before, final=False)
        sums.append(running_sum(piece, carry))
        before = carry.packed()
    assert torch.equal(torch.cat(sums, dim=2), turns.cumsum(2))  # float32, as upstream adds up


def snapshot(state: VocoderState) -> list[Tensor | int | None]:
    parts = (state.waiting, state.frames, state.pitch, state.signal)
    return [part.clone() if isinstance(part, Tensor) else part for part in parts]


def same(one: list[Tensor | int | None], other: list[Tensor | int | None]) -> bool:
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )


@contextmanager
def failing(module: torch.nn.Module, *, after: int) -> Iterator[None]:
    """`module` computes `after` times, then raises."""
    calls = iter(range(after + 1))

    def fail(*_: object) -> None:
        1 / (after - next(calls))

    hook = module.register_forward_hook(fail)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def recorded_work(vocoder: Vocoder) -> Iterator[list[int]]:
    """The number of values that each convolution computes, in order."""
    lengths: list[int] = []
    convolutions = [module for module in vocoder.modules() if isinstance(module, Conv)]
    hooks = [conv.register_forward_hook(lambda _, __, out: lengths.append(out.numel())) for conv in convolutions]
    try:
        yield lengths
    finally:
        for hook in hooks:
            hook.remove()
