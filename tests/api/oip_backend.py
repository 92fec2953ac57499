"""A backend without runners: speaks made-up samples that depend on seed and voice, fails or waits where it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from audio.shape import Shaper
from models.conditioning import Conditioning
from runners.frames import Frame, FrameKind
from runners.request import ModelInfo, RequestError, SpeechRequest, VoiceInfo
from text.errors import TextError
from text.frontend import Segment, TextFrontend, Warning
from text.literals import Literal
from text.options import TextOptions

RATE, HOP, HOPS = 24_000, 480, 3


class Frontend(TextFrontend):
    """Takes text as it is; " / " parts segments."""

    def prompt_text(self, text: str) -> str:
        return text

    def warm_up(self) -> None:
        """There is nothing to load."""

    def count_tokens(self, text: str) -> int:
        return len(text)

    def _segments(
        self, text: str, options: TextOptions, literals: Sequence[Literal]
    ) -> tuple[list[Segment], list[Warning]]:
        if not text.strip():
            raise TextError("input_empty", "The input is empty.")
        self.options = options
        return [Segment(piece, piece) for piece in text.split(" / ")], []


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
    frontend: Frontend = field(default_factory=Frontend)

    async def is_ready(self) -> bool:
        return self.ready

    async def describe(self) -> ModelInfo:
        if not self.loaded:
            raise RequestError("loading", "The model is still loading.", 503)
        voices = (VoiceInfo("cosy", ("preset",)), VoiceInfo("other", ("preset",)))
        return ModelInfo("tiny", self.version, RATE, "cosy", voices, ("preset", "zero_shot"), ("en",))

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        self.encoded.append((np.frombuffer(samples, np.float32), sample_rate))
        return Conditioning(np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((0, 80), np.float32))

    def dictate(self, request: SpeechRequest, texts: AsyncIterator[str]) -> AsyncGenerator[Frame, None]:
        raise AssertionError("no text arrives here")

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        self.running += 1
        try:
            for hop in range(self.hops):
                if hop == self.fail_after:
                    raise self.error
                if self.hold and hop:
                    await asyncio.Event().wait()
                yield Frame(FrameKind.AUDIO, made(request.seed, hop).tobytes())
            for index in range(count := len(request.segments)):
                yield Frame.of(FrameKind.SEGMENT, end=HOP * self.hops * (index + 1) // count)
            yield Frame.of(FrameKind.END, finish_reason="stop", text_tokens=1, speech_tokens=2)
        finally:
            self.running -= 1


def made(seed: int, hop: int) -> np.ndarray:
    return (np.random.default_rng(seed + hop).uniform(-0.5, 0.5, HOP)).astype(np.float32)


def hop_samples(seed: int, hop: int) -> np.ndarray:
    """As a client gets them: the first hop is faded in."""
    samples = made(seed, hop)
    return Shaper(RATE, RATE, fade_in=True).feed(samples) if hop == 0 else samples


def all_samples(seed: int, hops: int = HOPS) -> np.ndarray:
    return np.concatenate([hop_samples(seed, hop) for hop in range(hops)])
