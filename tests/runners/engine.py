"""An engine on a golden model, as the scheduler's tests use it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import torch

from models.conditioning import Conditioning
from models.config import load_config
from models.cosyvoice import CosyVoice
from models.sampling import Draw
from runners.frames import FrameKind
from runners.request import SpeechRequest
from runners.scheduler import Scheduler
from runners.settings import EngineSettings
from tests.golden import Golden, golden


@functools.cache
def tiny_model(version: int) -> CosyVoice:
    return CosyVoice.load(load_config(golden(version).dir))


def same_audio(ours: np.ndarray | torch.Tensor, expected: np.ndarray | torch.Tensor) -> bool:
    """Whether audio made in a batch is that made alone. Matrix products of another size round differently, by 1e-6 of
    the mel; the phase of the harmonics, which adds up over an utterance, makes up to 1e-3 of that at single samples."""
    error = np.abs(np.asarray(ours) - np.asarray(expected))
    return ours.shape == expected.shape and bool(error.max() <= 1e-3) and bool(error.mean() <= 5e-6)


def zero_shot_voice(gold: Golden) -> Conditioning:
    """The golden prompt as upstream's zero-shot front end leaves it."""
    return Conditioning(
        embedding=gold.array("zs.flow_embedding")[0],
        prompt_tokens=gold.array("zs.flow_prompt_speech_token")[0],
        prompt_mel=gold.array("zs.prompt_speech_feat")[0],
    )


def zero_shot_request(version: int, text: str = "Hello world, read this.", **changes) -> SpeechRequest:
    gold = golden(version)
    values = {"segments": (text,), "conditioning": zero_shot_voice(gold), "prompt_text": "this is a speech test."}
    return SpeechRequest(**{**values, **changes})


def greedy(logp: torch.Tensor, draws: Sequence[Draw]) -> list[int | Exception]:
    """The golden sampler: the best real speech token, so that an utterance always has its full length."""
    return list(logp[:, :6561].argmax(dim=1).tolist())


@asynccontextmanager
async def engine(version: int, sampler=None, model: CosyVoice | None = None, **settings) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(model or tiny_model(version), EngineSettings(**settings), sampler)
    scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.close()


async def speak(scheduler: Scheduler, request: SpeechRequest) -> tuple[list[np.ndarray], dict]:
    """The audio blocks of one request and its last frame's fields (`code` in them when it failed)."""
    job = await scheduler.submit(request)
    blocks = []
    async for frame in job.frames():
        if frame.kind is FrameKind.AUDIO:
            blocks.append(np.frombuffer(frame.payload, np.float32))
        elif frame.last:
            return blocks, frame.json()
    raise AssertionError("no last frame")


async def until(condition, timeout: float = 30.0) -> None:
    async with asyncio.timeout(timeout) if hasattr(asyncio, "timeout") else _no_timeout():
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def _no_timeout():
    yield
