"""The estimator's blocks as graphs give what they give one launch after the other; here a tape stands for a graph."""

from __future__ import annotations

import functools

import pytest
import torch

from models.config import load_config
from models.flow import Flow, Prefix
from models.flow_graphs import BlockStack
from models.key_values import Window
from tests.golden import golden
from tests.models.flow_stages import CASES, array, close, tiny_flow
from tests.models.flow_stages import piece as golden_piece
from tests.models.tape import Recorder
from tests.models.test_flow_stream import TOLERANCE, cuts, piece, utterance

BUCKETS = (64, 256, 384)


@functools.cache
def captured(version: int) -> tuple[Flow, Recorder]:
    flow, recorder = Flow.load(load_config(golden(version).dir)), Recorder()
    flow.use_graphs(recorder, BUCKETS)
    return flow, recorder


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [2, 3])
def test_the_mel_by_graphs_is_upstreams(version: int, case: str) -> None:
    flow, _ = captured(version)
    given = golden_piece(version, case)
    ((mel, _),) = flow.inference([given])
    assert close(mel[:, len(given.cond) :], array(version, f"flow.{case}.mel")[0])


@pytest.mark.parametrize("version", [2, 3])
def test_a_batch_of_streams_by_graphs_is_each_stream_without(version: int) -> None:
    """Pieces of several sizes, in rings that wrap, follow on what other pieces went before in the same buckets."""
    flow, recorder = captured(version)
    blocks = sum(len(m) for m in flow.decoder.estimator.modules() if isinstance(m, BlockStack))
    assert recorder.captured == 2 * blocks * len(BUCKETS)
    window = Window(pinned=50, recent=50, ahead=50)
    streams = [(utterance(version, 210 - 30 * seed, seed), cuts(seed, 210 - 30 * seed)) for seed in range(3)]
    plain: list[tuple[int, Prefix]] = [(0, Prefix()) for _ in streams]
    graphed = list(plain)
    for turn in range(max(len(stops) for _, stops in streams)):
        rows = [row for row, (_, stops) in enumerate(streams) if turn < len(stops)]

        def pieces(places, rows=rows, turn=turn):
            given = [(streams[row][0], places[row][0], streams[row][1][turn], places[row][1]) for row in rows]
            return [piece(version, *one, window) for one in given]

        for row, (mel, prefix) in zip(rows, flow.inference(pieces(graphed)), strict=True):
            ((alone, alone_prefix),) = tiny_flow(version).inference([pieces(plain)[rows.index(row)]])
            assert (mel - alone).abs().max() <= TOLERANCE
            assert prefix.bytes == alone_prefix.bytes
            stop = streams[row][1][turn]
            plain[row], graphed[row] = (stop, alone_prefix), (stop, prefix)
    assert recorder.captured == 2 * blocks * len(BUCKETS)  # at the beginning, and never again


@pytest.mark.parametrize("version", [2, 3])
def test_more_frames_than_any_bucket_has_run_without_graphs(version: int) -> None:
    flow, recorder = captured(version)
    before = recorder.captured
    batch = [piece(version, utterance(version), 0, 100, None) for _ in range(2)]
    assert BUCKETS[-1] < 2 * 200
    for (mel, _), (expected, _) in zip(flow.inference(batch), tiny_flow(version).inference(batch), strict=True):
        assert torch.equal(mel, expected)
    assert recorder.captured == before


@pytest.mark.parametrize("version", [2, 3])
def test_what_is_not_finite_stays_where_it_is(version: int) -> None:
    """A stream that has gone bad leaves nothing in a bucket for those who come after it."""
    flow, _ = captured(version)
    given = golden_piece(version, "full")
    bad = piece(version, utterance(version), 0, 100, None)
    bad.cond.fill_(torch.nan)
    good, spoilt = flow.inference([given, bad])
    assert spoilt[0].isnan().any()
    for mel in (good[0], flow.inference([given])[0][0]):
        assert close(mel[:, len(given.cond) :], array(version, "flow.full.mel")[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graphs_give_what_single_launches_give(version: int, dtype: torch.dtype) -> None:
    config = load_config(golden(version).dir)
    plain, graphed = (Flow.load(config, dtype=dtype, device="cuda") for _ in range(2))
    graphed.use_graphs()
    batch = [piece(version, utterance(version), 0, count, Prefix()) for count in (25, 50, 100)]
    for (mel, _), (expected, _) in zip(graphed.inference(batch), plain.inference(batch), strict=True):
        torch.testing.assert_close(mel, expected, atol=1e-3 if dtype == torch.float32 else 0.3, rtol=0)
