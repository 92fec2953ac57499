"""The golden flow stages of both versions, time-major, and one run of our flow with its inner values observed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from models.config import load_config
from models.flow import Flow, Piece, Prefix
from tests.golden import golden

TOLERANCE = 1e-5
# What upstream was called with: (streaming, finalize).
CASES = {"full": (False, True), "chunkmask": (True, True), "lookahead": (True, False)}
TARGET_TOKENS = 60


@functools.cache
def tiny_flow(version: int) -> Flow:
    return Flow.load(load_config(golden(version).dir))


def array(version: int, name: str) -> Tensor:
    return torch.from_numpy(golden(version).array(name))


def frames(version: int, name: str) -> Tensor:
    """A golden array `[B, 80, M]` as `[B, M, 80]`."""
    return array(version, name).transpose(1, 2)


def close(ours: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    return ours.shape == expected.shape and bool((ours - expected).abs().max() <= tolerance)


@dataclass(frozen=True)
class Run:
    mel: Tensor
    mu: Tensor
    steps: list[tuple[Tensor, Tensor]]  # estimator input x and output, 10 times


def prompt(version: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens `[P]`, mel `[M, 80]` and x-vector `[192]` of the golden zero-shot prompt."""
    names = ("zs.flow_prompt_speech_token", "zs.prompt_speech_feat", "zs.flow_embedding")
    tokens, mel, embedding = (array(version, name)[0] for name in names)
    return tokens, mel, embedding


def target(version: int) -> Tensor:
    return array(version, "flow.token")[0, :TARGET_TOKENS]


def piece(version: int, case: str) -> Piece:
    """The golden input of a case: the whole utterance, chunk by chunk where upstream was asked to stream."""
    streaming, finalize = CASES[case]
    tokens, mel, embedding = prompt(version)
    every = torch.cat((tokens, target(version))).long()
    count = len(every) - (0 if finalize else tiny_flow(version).lookahead)
    return Piece(every[:count], every[count:], mel, embedding, Prefix() if streaming else None)


@functools.cache
def run(version: int, case: str) -> Run:
    """Our flow on the golden input of a case."""
    flow, given = tiny_flow(version), piece(version, case)
    steps: list[tuple[Tensor, Tensor]] = []
    observe = flow.decoder.estimator.register_forward_hook(
        lambda module, inputs, output: steps.append((inputs[0], output))
    )
    try:
        ((mel, _),) = flow.inference([given])
    finally:
        observe.remove()
    with torch.inference_mode():
        return Run(mel[:, len(given.cond) :], flow.means([given])[None], steps)
