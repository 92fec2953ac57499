"""The baseline of the benchmark says what the engine says when it keeps to upstream, so the two may be compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.measure.speakers import endless, fixed_request
from benchmarks.measure.upstream import UpstreamEngine
from runners.request import SpeechRequest
from tests.models.test_token2wav import MEAN_TOLERANCE, WAVE_TOLERANCE
from tests.runners.engine import engine, speak, tiny_model, zero_shot_request


async def same(version: int, request: SpeechRequest, *, stops: bool) -> int:
    """How many pieces both speak."""
    model = tiny_model(version)
    async with engine(version, upstream_compat=True) as scheduler:
        pieces, end = await speak(scheduler, request)
    assert "finish_reason" in end, end
    upstream = [piece.numpy() for piece in UpstreamEngine(model, endless=not stops).speak(request)]
    assert [len(piece) for piece in upstream] == [len(piece) for piece in pieces]
    error = np.abs(np.concatenate(upstream) - np.concatenate(pieces))
    assert error.max() <= WAVE_TOLERANCE
    assert error.mean() <= MEAN_TOLERANCE
    return len(pieces)


@pytest.mark.parametrize("version", [2, 3])
async def test_a_request_is_the_engines_with_upstream_compat(version: int) -> None:
    request = zero_shot_request(version, "Hello world.", seed=2)
    assert await same(version, request, stops=True) >= 1


@pytest.mark.parametrize("version", [2, 3])
async def test_streams_of_fixed_length_are_too(version: int) -> None:
    model = tiny_model(version)
    with endless(model):
        pieces = await same(version, fixed_request(model, 100, seed=1), stops=False)
    assert pieces == 3  # hops of 25 and 50 tokens, and the rest


@pytest.mark.parametrize("tokens", [20, 100])
@pytest.mark.parametrize("version", [2, 3])
async def test_endless_speech_has_the_length_that_was_asked_for(version: int, tokens: int) -> None:
    model = tiny_model(version)
    with endless(model):
        async with engine(version) as scheduler:
            _, end = await speak(scheduler, fixed_request(model, tokens, seed=3))
    assert end["speech_tokens"] == tokens
    logp = model.lm.extend(cache := model.lm.new_cache(), cache.add(), model.lm.build_input([1, 2]))
    assert torch.isfinite(logp).all()  # the model is as it was
