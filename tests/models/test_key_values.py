"""The ring gives attention what a list of all frames would, whatever was cut, followed on again or grown."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.key_values import KeyValues, Window, most_slots

CHUNK = 5
WINDOWS = (None, Window(0, 10), Window(10, 15, ahead=20), Window(7, 5, ahead=5))


def frames(start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Keys and values `[2, 3, n, 4]`, other ones for every frame."""
    each = [torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(frame)) for frame in range(start, stop)]
    keys, values = torch.stack(each, dim=3)
    return keys, values


def expected(queries: Tensor, start: int, stop: int, window: Window | None) -> Tensor:
    """What `stop - start` frames see when each chunk picks its frames out of all."""
    mixed = []
    for begin in range(start, stop, CHUNK):
        end = min(begin + CHUNK, stop)
        first = 0 if window is None else begin - window.recent
        pinned = 0 if window is None else window.pinned
        seen = [frame for frame in range(end) if frame < pinned or frame >= first]
        keys, values = frames(0, end)
        chunk = queries[:, :, begin - start : end - start]
        mixed.append(F.scaled_dot_product_attention(chunk, keys[:, :, seen], values[:, :, seen]))
    return torch.cat(mixed, dim=2)


def follow(past: KeyValues | None, start: int, stop: int, window: Window | None) -> KeyValues:
    """The frames behind `past`; what they see is checked."""
    keys, values = frames(start, stop)
    held = KeyValues.of(keys, values, window) if past is None else past.followed_by(keys, values, window)
    queries = torch.randn(2, 3, stop - start, 4)
    slots = held.slots_until(stop)
    mask = held.visible(start, stop, CHUNK, window, queries)
    seen = F.scaled_dot_product_attention(queries, held.ring.keys[:, :, :slots], held.ring.values[:, :, :slots], mask)
    assert (seen - expected(queries, start, stop, window)).abs().max() < 1e-5
    return held


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_sees_its_window_and_can_be_followed_on_again(window: Window | None, seed: int) -> None:
    rng = random.Random(seed)
    held, start = None, 0
    for _ in range(12):
        stop = start + CHUNK * rng.randint(1, 4)
        after = follow(held, start, stop, window)
        if held is not None and rng.random() < 0.4:  # as after a fault in the middle of the pass
            follow(held, start, start + CHUNK, window)
            after = follow(held, start, stop, window)
        held, start = after, stop
    assert held is not None
    per_slot = 2 * 4 * 2 * 3 * 4
    longest_pass = 20 if window is None else window.pinned + window.recent + 20
    assert held.bytes <= per_slot * max(1.5 * most_slots(start, window), longest_pass)


def test_memory_for_what_is_expected_is_taken_once() -> None:
    held = follow(None, 0, 10, None)
    for start in range(10, 60, 10):
        held = held.followed_by(*frames(start, start + 10), None, expected=60)
        assert held.ring.slots == 60


def test_streams_share_a_beginning() -> None:
    window = Window(10, 15, ahead=20)
    voice = follow(None, 0, 10, window)
    streams = [follow(voice, 10, 20, window), follow(voice, 10, 15, window)]
    for held in streams:
        for _ in range(9):
            held = follow(held, held.frames, held.frames + 10, window)  # goes round
    assert voice.ring.slots == 10
    follow(voice, 10, 30, window)


def test_a_state_from_long_ago_is_refused() -> None:
    window = Window(0, 10, ahead=5)
    early = follow(follow(None, 0, 10, window), 10, 30, window)
    late = early
    for _ in range(6):
        late = follow(late, late.frames, late.frames + 5, window)
    assert late.ring is early.ring
    with pytest.raises(RuntimeError, match="older than its last hop"):
        follow(early, 30, 35, window)
