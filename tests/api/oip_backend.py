"""A backend without runners: speaks made-up samples that depend on seed and voice, fails or waits where it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import numpy as np

from models.conditioning import Conditioning
from runners.frames import Frame, FrameKind
from runners.request import ModelInfo, RequestError, SpeechRequest, VoiceInfo
from text.frontend import Segment, TextFrontend

HOP, HOPS = 480, 3


class Frontend(TextFrontend):
    """Takes text as it is."""

    def prompt_text(self, text: str) -> str:
        return text

    def warm_up(self) -> None:
        """There is nothing to load."""

    def _segments(self, text: str) -> list[Segment]:
        return [Segment(text, text)]


@dataclass
class FakeBackend:
    """`fail_after`: the hop before which the engine fails; `hold`: never goes beyond the first hop."""

    ready: bool = True
    loaded: bool = True
    version: int = 2
    fail_after: int | None = None
    error: Exception = field(default_factory=lambda: RequestError("engine_error", "The engine stopped.", 500))
    hold: bool = False
    hops: int = HOPS
    requests: list[SpeechRequest] = field(default_factory=list)
    encoded: list[tuple[np.ndarray, int]] = field(default_factory=list)
    running: int = 0

    @property
    def frontend(self) -> TextFrontend:
        return Frontend()

    async def is_ready(self) -> bool:
        return self.ready

    async def describe(self) -> ModelInfo:
        if not self.loaded:
            raise RequestError("loading", "The model is still loading.", 503)
        voices = (VoiceInfo("cosy", ("preset",)), VoiceInfo("other", ("preset",)))
        return ModelInfo("tiny", self.version, 24_000, "cosy", voices, ("preset", "zero_shot"), ("en",))

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        self.encoded.append((np.frombuffer(samples, np.float32), sample_rate))
        return Conditioning(np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((0, 80), np.float32))

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        self.running += 1
        try:
            for hop in range(self.hops):
                if hop == self.fail_after:
                    raise self.error
                if self.hold and hop:
                    await asyncio.Event().wait()
                yield Frame(FrameKind.AUDIO, hop_samples(request.seed, hop).tobytes())
            yield Frame.of(FrameKind.END, finish_reason="stop", text_tokens=1, speech_tokens=2)
        finally:
            self.running -= 1


def hop_samples(seed: int, hop: int) -> np.ndarray:
    return (np.random.default_rng(seed + hop).uniform(-0.5, 0.5, HOP)).astype(np.float32)


def all_samples(seed: int, hops: int = HOPS) -> np.ndarray:
    return np.concatenate([hop_samples(seed, hop) for hop in range(hops)])
