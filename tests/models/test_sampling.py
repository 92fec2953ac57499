"""Sampling draws the same tokens as the genuine code from the same generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.config import SamplingConfig
from models.sampling import Draw, SilentFilter, ids_below_min_length, mask_ids, ras_sample, ras_sample_batch
from tests.golden import golden

UPSTREAM = SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("version", [2, 3])
def test_ras_draws_the_golden_tokens(version: int) -> None:
    reference = golden(version)
    logp, history, lengths, expected = (
        reference.array(f"ras.{name}") for name in ("logp", "history", "history_len", "token")
    )
    drawn = [
        ras_sample(torch.tensor(logp[i]), history[i, : lengths[i]].tolist(), UPSTREAM, seeded(1000 + i))
        for i in range(len(expected))
    ]
    assert drawn == expected.tolist()


def test_equal_probabilities_are_taken_in_the_order_of_their_ids() -> None:
    config = SamplingConfig(top_p=1.0, top_k=3, win_size=10, tau_r=2.0)
    drawn = {ras_sample(torch.zeros(50), [], config, seeded(seed)) for seed in range(64)}
    assert drawn == {0, 1, 2}


def test_the_nucleus_ends_with_the_id_that_reaches_top_p() -> None:
    logp = torch.tensor([0.1, 0.5, 0.3, 0.1]).log()
    config = SamplingConfig(top_p=0.6, top_k=25, win_size=10, tau_r=2.0)
    assert {ras_sample(logp, [], config, seeded(seed)) for seed in range(64)} == {1, 2}


@pytest.mark.parametrize(("tau_r", "repeated"), [(0.1, False), (1.1, True)])
def test_a_repeat_is_redrawn_only_where_the_voice_forbids_repeats(tau_r: float, repeated: bool) -> None:
    logp = torch.tensor([0.97, 0.01, 0.01, 0.01]).log()
    config = SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=tau_r)
    drawn = {ras_sample(logp, [0] * 10, config, seeded(seed)) for seed in range(32)}
    assert (drawn == {0}) is repeated
    assert (0 in drawn) is repeated


def test_a_repeat_before_the_window_does_not_count() -> None:
    logp = torch.tensor([0.97, 0.01, 0.01, 0.01]).log()
    history = [0] + [1] * UPSTREAM.win_size
    assert {ras_sample(logp, history, UPSTREAM, seeded(seed)) for seed in range(16)} == {0}


def test_the_log_probabilities_given_are_left_as_they_are() -> None:
    logp = torch.randn(64, generator=seeded(0)).log_softmax(0)
    before = logp.clone()
    for seed in range(20):
        ras_sample(mask_ids(logp, range(60, 64)), list(range(64)), UPSTREAM, seeded(seed))
    assert torch.equal(logp, before)


@pytest.mark.parametrize("version", [2, 3])
def test_a_batch_draws_the_golden_tokens(version: int) -> None:
    reference = golden(version)
    logp, history, lengths, expected = (
        reference.array(f"ras.{name}") for name in ("logp", "history", "history_len", "token")
    )
    draws = [Draw(history[i, : lengths[i]].tolist(), seeded(1000 + i)) for i in range(len(expected))]
    assert ras_sample_batch(torch.tensor(logp), draws, UPSTREAM) == expected.tolist()


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("tau_r", [0.1, 1.1])
def test_rows_draw_the_same_alone_and_in_a_batch(scale: float, tau_r: float) -> None:
    """With the same state of their generators afterwards; rows with equal probabilities are among them."""
    config = SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=tau_r)
    generator = seeded(0)
    alone, together = [[seeded(row) for row in range(9)] for _ in range(2)]
    histories: list[list[int]] = [[] for _ in range(9)]
    for step in range(40):
        logp = (scale * torch.randn(9, 200, generator=generator)).log_softmax(dim=1)
        logp[step % 9] = logp[step % 9].mul(4).round() / 4
        forbidden = [range(190, 200) if (step + row) % 3 else range(0) for row in range(9)]
        before = logp.clone()
        draws = [Draw(*each) for each in zip(histories, together, forbidden, strict=True)]
        tokens = ras_sample_batch(logp, draws, config)
        assert torch.equal(logp, before)
        assert tokens == [
            ras_sample(mask_ids(logp[row], forbidden[row]), histories[row], config, alone[row]) for row in range(9)
        ]
        for row, token in enumerate(tokens):
            assert isinstance(token, int)
            assert token not in forbidden[row]
            histories[row].append(token)
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one.get_state(), other.get_state())


def test_rows_of_one_batch_keep_their_own_nucleus_and_temperature() -> None:
    """What a row draws is what it would draw alone; rows that want nothing of their own are as the batch is."""
    generator = seeded(0)
    configs = [None, SamplingConfig(0.5, 3, 10, 0.1), SamplingConfig(1.0, 60, 10, 0.1), None]
    temperatures = [1.0, 1.0, 0.6, 1.7]
    alone, together = [[seeded(row) for row in range(4)] for _ in range(2)]
    for _ in range(40):
        logp = (3 * torch.randn(4, 200, generator=generator)).log_softmax(dim=1)
        before = logp.clone()
        draws = [Draw([], *each) for each in zip(together, [range(190, 200)] * 4, configs, temperatures, strict=True)]
        tokens = ras_sample_batch(logp, draws, UPSTREAM)
        assert torch.equal(logp, before)
        assert tokens == [
            ras_sample(
                mask_ids(logp[row], range(190, 200)) / temperatures[row], [], configs[row] or UPSTREAM, alone[row]
            )
            for row in range(4)
        ]
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one.get_state(), other.get_state())


def test_a_low_temperature_takes_the_most_probable() -> None:
    logp = torch.randn(1, 200, generator=seeded(0)).log_softmax(dim=1)
    drawn = {ras_sample_batch(logp, [Draw([], seeded(seed), temperature=0.01)], UPSTREAM)[0] for seed in range(32)}
    assert drawn == {int(logp.argmax())}


def test_a_row_that_is_not_finite_fails_alone() -> None:
    logp = torch.randn(5, 64, generator=seeded(0)).log_softmax(dim=1)
    logp[1, 7] = torch.nan
    logp[2] = -torch.inf
    logp[3, 7] = torch.inf
    tokens = ras_sample_batch(logp, [Draw([], seeded(row)) for row in range(5)], UPSTREAM)
    assert [isinstance(token, FloatingPointError) for token in tokens] == [False, True, True, True, False]
    assert [tokens[row] for row in (0, 4)] == [ras_sample(logp[row], [], UPSTREAM, seeded(row)) for row in (0, 4)]
    with pytest.raises(FloatingPointError):
        ras_sample(logp[1], [], UPSTREAM, seeded(1))


def test_below_the_minimum_length_nothing_can_end_an_utterance() -> None:
    lm: Any = SimpleNamespace(speech_token_size=6, stop_ids=range(6, 9))
    assert ids_below_min_length(lm) == range(6, 9)
    assert ids_below_min_length(lm, upstream_compat=True) == range(6, 7)
    masked = mask_ids(torch.zeros(9), range(6, 9))
    assert masked.isinf().tolist() == [False] * 6 + [True] * 3


def test_silence_is_cut_to_the_golden_runs() -> None:
    case = golden(3).json("silent_filter.json")
    silent = SilentFilter.of_version(3)
    assert [token for token in case["in"] if silent.keep(token)] == case["out"]


def test_version_2_speaks_every_token() -> None:
    tokens = golden(3).json("silent_filter.json")["in"]
    silent = SilentFilter.of_version(2)
    assert all(silent.keep(token) for token in tokens)
