"""What the benchmark's parts measure, and that its shortcuts change nothing."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.loading.levels import Closed, Open
from benchmarks.measure.engine_load import measure_load
from benchmarks.measure.speakers import endless, fixed_request, voice
from benchmarks.measure.stages import DECODE, FLOW, PREFILL, VOCODER, watch
from benchmarks.measure.streaming import grown, growth, hop_starts, with_window
from models.token2wav import Turn
from runners.settings import EngineSettings
from tests.models.test_token2wav import golden_rng, said
from tests.runners.engine import engine, speak, tiny_model


@pytest.mark.parametrize("window", [None, 4, 2])
@pytest.mark.parametrize("version", [2, 3])
def test_a_grown_prefix_has_the_shape_of_a_computed_one(version: int, window: int | None) -> None:
    model, number = tiny_model(version), 6
    token2wav = with_window(model, window)
    prompt = token2wav.prompt(voice(model))
    starts = hop_starts(token2wav, prompt, number)
    tokens = list(range(starts[-1] + 10))
    state = early = said(token2wav, Turn(token2wav.new_stream(prompt, rng=golden_rng), tokens, last=False)).state
    while state.offset < starts[-1]:
        state = said(token2wav, Turn(state, tokens, last=False)).state
    short = grown(token2wav, early, number, starts[-1])
    assert (short.hops, short.offset) == (state.hops, state.offset)
    assert short.prefix is not None
    assert state.prefix is not None
    for ours, computed in zip(short.prefix.memories, state.prefix.memories, strict=True):
        assert ours.frames == computed.frames
        assert [held.frames for held in ours.attended] == [held.frames for held in computed.attended]


def test_hops_that_do_not_fit_into_memory_are_left_out_and_said_so() -> None:
    report = growth(tiny_model(2), "float32", None, 1_000_000, (2, 4), repeats=1)
    assert report.hops == ()
    assert report.prefix_gb > 0


async def test_stages_are_counted_with_their_batches() -> None:
    model = tiny_model(2)
    extend = model.lm.extend
    with endless(model), watch(model) as stopwatch:
        async with engine(2) as scheduler:
            requests = [fixed_request(model, 40, seed) for seed in range(3)]
            ends = await asyncio.gather(*(speak(scheduler, request) for request in requests))
    assert all(end["speech_tokens"] == 40 for _, end in ends)
    stages = {stage.name: stage for stage in stopwatch.stages()}
    assert set(stages) == {PREFILL, DECODE, FLOW, VOCODER}
    assert stages[PREFILL].calls == 3
    assert stages[DECODE].batch * stages[DECODE].calls == pytest.approx(3 * 39)
    assert stages[DECODE].largest == 3
    assert all(stage.seconds > 0 and stage.cpu > 0 for stage in stages.values())
    assert model.lm.extend == extend


@pytest.mark.parametrize("load", [Closed(2), Open(50.0)])
def test_a_load_asks_for_all_its_requests(load: Closed | Open) -> None:
    model = tiny_model(3)
    with endless(model):
        measured = measure_load(model, EngineSettings(), [fixed_request(model, 20, seed=1)], load, 5)
    figures = measured.figures
    assert figures.ok == figures.requests == 5
    assert figures.audio_s is not None
    assert figures.audio_s.p50 == pytest.approx(20 / 25)
    assert figures.ttfa_s is not None
    assert 0 < figures.ttfa_s.p50 <= figures.wall_s


def test_a_failed_request_is_no_figure() -> None:
    model = tiny_model(3)
    with pytest.raises(RuntimeError, match="overloaded"):
        measure_load(model, EngineSettings(max_requests=1), [fixed_request(model, 20, seed=1)], Closed(3), 5)
