"""A stream's pieces give what the whole gives, in any batch; what they keep does not grow beyond its window."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from models.flow import Piece, Prefix
from models.key_values import Window
from tests.models.flow_stages import prompt, target, tiny_flow

TOLERANCE = 1e-4
CHUNK = 25  # tokens
ALL_TOKENS = 210


def utterance(version: int, count: int = ALL_TOKENS, shift: int = 0) -> Tensor:
    """`[count]` tokens that begin with the golden prompt."""
    tokens, _, _ = prompt(version)
    return torch.cat((tokens, (target(version).roll(shift)).repeat(4)))[:count].long()


def piece(version: int, tokens: Tensor, start: int, stop: int, prefix: Prefix | None, window: Window | None = None):
    _, mel, embedding = prompt(version)
    ahead = tokens[stop : stop + tiny_flow(version).lookahead]
    return Piece(tokens[start:stop], ahead, mel[2 * start : 2 * stop], embedding, prefix, window)


def streamed(version: int, tokens: Tensor, stops: list[int], window: Window | None = None) -> tuple[Tensor, Prefix]:
    mels, prefix, start = [], Prefix(), 0
    for stop in stops:
        ((mel, prefix),) = tiny_flow(version).inference([piece(version, tokens, start, stop, prefix, window)])
        mels.append(mel)
        start = stop
    return torch.cat(mels, dim=1), prefix


def cuts(seed: int, count: int) -> list[int]:
    """Ends of pieces: some of the chunks' ends, then the end of all."""
    inner = list(range(CHUNK, count - 3, CHUNK))
    chosen = random.Random(seed).sample(inner, random.Random(seed + 1).randint(0, len(inner)))
    return [*sorted(chosen), count]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_pieces_give_what_one_pass_gives(version: int, seed: int) -> None:
    count = ALL_TOKENS - 7 * seed
    tokens = utterance(version, count, seed)
    whole, _ = streamed(version, tokens, [count])
    pieces, _ = streamed(version, tokens, cuts(seed, count))
    assert whole.shape == (80, 2 * count)
    assert (whole - pieces).abs().max() <= TOLERANCE


@pytest.mark.parametrize("version", [2, 3])
def test_a_batch_gives_what_each_piece_gives_alone(version: int) -> None:
    flow = tiny_flow(version)
    one, two = utterance(version), utterance(version, 140, 9)
    _, prefix_one = streamed(version, one, [75])
    _, prefix_two = streamed(version, two, [100])
    batch = [
        piece(version, one, 75, 175, prefix_one),
        piece(version, two, 0, 140, None),
        piece(version, two, 100, 140, prefix_two),
        piece(version, two, 0, 50, Prefix()),
        piece(version, one, 75, 100, prefix_one),
    ]
    for (mel, prefix), single in zip(flow.inference(batch), batch, strict=True):
        ((alone, alone_prefix),) = flow.inference([single])
        assert mel.shape == alone.shape
        assert (mel - alone).abs().max() <= TOLERANCE
        assert prefix.bytes == alone_prefix.bytes


@pytest.mark.parametrize("version", [2, 3])
def test_a_prefix_is_a_snapshot_that_streams_share(version: int) -> None:
    tokens = utterance(version)
    _, prefix = streamed(version, tokens, [75])
    before = [tensor.clone() for tensor in tensors(prefix)]
    first = tiny_flow(version).inference([piece(version, tokens, 75, 125, prefix)])[0][0]
    again = tiny_flow(version).inference([piece(version, tokens, 75, 125, prefix)])[0][0]
    assert torch.equal(first, again)
    assert all(torch.equal(old, new) for old, new in zip(before, tensors(prefix), strict=True))


@pytest.mark.parametrize("version", [2, 3])
def test_a_window_bounds_what_is_kept_and_changes_nothing_within(version: int) -> None:
    tokens = utterance(version)
    window = Window(pinned=50, recent=100, ahead=50)
    ends = list(range(CHUNK, ALL_TOKENS, CHUNK))
    unbounded, _ = streamed(version, tokens, [*ends, ALL_TOKENS])
    bounded, _ = streamed(version, tokens, [*ends, ALL_TOKENS], window)
    within = window.pinned + window.recent + 50  # a chunk that starts at the window's end still sees everything
    assert (bounded[:, :within] - unbounded[:, :within]).abs().max() <= TOLERANCE
    assert (bounded[:, within:] - unbounded[:, within:]).abs().max() > TOLERANCE
    sizes = [kept_frames(streamed(version, tokens, ends[:n], window)[1]) for n in (5, 7, 8)]
    assert sizes == [200, 200, 200]  # with the room for a chunk that is being read


@pytest.mark.parametrize("version", [2, 3])
def test_a_window_hides_the_same_frames_however_the_stream_is_cut(version: int) -> None:
    tokens, window = utterance(version), Window(pinned=50, recent=100)
    fine, _ = streamed(version, tokens, [*range(CHUNK, ALL_TOKENS, CHUNK), ALL_TOKENS], window)
    coarse, _ = streamed(version, tokens, [100, ALL_TOKENS], window)
    assert (fine - coarse).abs().max() <= TOLERANCE


def kept_frames(prefix: Prefix) -> int:
    """Frames of keys that the estimator's memory of the last step has room for."""
    return max(held.ring.slots for held in prefix.memories[-1].attended)


def tensors(prefix: Prefix) -> list[Tensor]:
    inputs = [tensor for memory in prefix.memories for tensor in memory.inputs]
    held = [held for memory in prefix.memories for held in memory.attended]
    return inputs + [tensor[:, :, : kv.frames] for kv in held for tensor in (kv.ring.keys, kv.ring.values)]
