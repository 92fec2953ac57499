"""What an utterance keeps of the tokens it is given."""

from __future__ import annotations

import torch

from models.sampling import SilentFilter
from runners.sequence import Utterance, request_generator


def _utterance(max_tokens: int = 100, **fields) -> Utterance:
    return Utterance(
        job=None,  # type: ignore[arg-type]
        index=0,
        text_ids=(1,),
        text_tokens=1,
        min_tokens=0,
        max_tokens=max_tokens,
        generator=torch.Generator(),
        silent_filter=SilentFilter.of_version(2),
        **fields,
    )


def test_leading_silence_is_cut_to_its_last_tokens_and_later_silence_stays() -> None:
    utterance = _utterance(silence=frozenset({0, 1}), silence_kept=2)
    for token in (0, 0, 1, 0, 1, 7, 0, 0, 0, 8):
        utterance.accept(token)
    assert utterance.tokens == [0, 1, 7, 0, 0, 0, 8]
    assert utterance.history == [0, 0, 1, 0, 1, 7, 0, 0, 0, 8]


def test_long_leading_silence_keeps_as_much_as_is_asked_for() -> None:
    utterance = _utterance(silence=frozenset({0}), silence_kept=3)
    for token in (*[0] * 8, 7):
        utterance.accept(token)
    assert utterance.tokens == [0, 0, 0, 7]


def test_less_leading_silence_than_is_kept_stays_as_it_is() -> None:
    utterance = _utterance(silence=frozenset({0}), silence_kept=3)
    for token in (0, 7):
        utterance.accept(token)
    assert utterance.tokens == [0, 7]


def test_nothing_is_cut_where_the_model_declares_no_silence() -> None:
    utterance = _utterance()
    for token in (0, 0, 7):
        utterance.accept(token)
    assert utterance.tokens == [0, 0, 7]


def test_an_utterance_of_silence_alone_ends_at_its_limit() -> None:
    utterance = _utterance(max_tokens=5, silence=frozenset({0}))
    for _ in range(5):
        utterance.accept(0)
    assert utterance.decoded
    assert utterance.truncated
    assert utterance.tokens == []


def test_generators_depend_on_the_seed_and_their_coordinates_only() -> None:
    def draw(*coordinates: int) -> float:
        return float(torch.rand(1, generator=request_generator(*coordinates)))

    assert draw(1, 0, 0) == draw(1, 0, 0)
    assert len({draw(seed, stage, index) for seed in (1, 2) for stage in (0, 1) for index in (0, 1)}) == 8
