"""What one request owns while it runs: its utterances, their tokens, its random numbers, its audio on the way out."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from models.bistream import Bistream
from models.config import SamplingConfig
from models.sampling import Draw, SilentFilter
from models.token2wav import StreamState
from runners.frames import Frame, FrameKind
from runners.modes import Plan
from runners.request import RequestError, Sampling, SpeechRequest

# The stages that draw random numbers, as coordinates of a request's seed: each has a stream of its own, so that no
# stage, segment or neighbour in a batch changes what another one draws.
_SAMPLING, _VOCODER = 0, 1


def request_generator(seed: int, *coordinates: int) -> torch.Generator:
    """A CPU generator that depends on the request's seed and these coordinates only."""
    state = np.random.SeedSequence([seed, *coordinates]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


def sampling_config(wanted: Sampling, model: SamplingConfig) -> SamplingConfig:
    """The model's sampling with the nucleus that a request wants."""
    return replace(
        model,
        top_p=model.top_p if wanted.top_p is None else wanted.top_p,
        top_k=model.top_k if wanted.top_k is None else wanted.top_k,
    )


@dataclass
class Utterance:
    """One segment of a request: decoded by the language model, then synthesised hop by hop or in one pass.

    `bistream`: of an incremental one, whose text is still arriving.
    """

    job: Job
    index: int
    text_ids: tuple[int, ...]  # prompt text and text; empty when the speech tokens are given (voice conversion)
    text_tokens: int  # those of the text alone
    min_tokens: int
    max_tokens: int
    generator: torch.Generator
    silent_filter: SilentFilter
    sampling: SamplingConfig | None = None  # None: the model's
    silence: frozenset[int] = frozenset()  # tokens that are cut before the first sound, all but the last few
    silence_kept: int = 0
    bistream: Bistream | None = None
    history: list[int] = field(default_factory=list)  # every decoded speech token: what the language model sees
    tokens: list[int] = field(default_factory=list)  # those that are synthesised
    slot: int | None = None  # row of the KV cache while the utterance is live
    live_at: float = 0.0  # monotonic seconds at which it took its slot
    sounded: bool = False
    decoded: bool = False
    truncated: bool = False  # the token limit ended it, not the model
    state: StreamState = field(init=False)  # what its next audio goes on from; the scheduler begins it
    ready_at: float = math.inf  # monotonic seconds at which its next audio became computable
    needs: int = 0  # bytes it may come to
    reserved: int | None = None  # of the engine's memory, from its begin to its end

    def accept(self, token: int) -> None:
        """Take one sampled speech token (not a stop token)."""
        self.history.append(token)
        if self.silent_filter.keep(token):
            self.tokens.append(token)
        if not self.sounded:
            self.sounded = token not in self.silence
            if not self.sounded:
                del self.tokens[: max(0, len(self.tokens) - self.silence_kept)]
        if len(self.history) >= self.max_tokens:
            self.decoded = self.truncated = True

    @property
    def text_wanted(self) -> bool:
        """Whether the language model can do nothing before more text comes."""
        return self.bistream is not None and self.bistream.next_input() is None

    @property
    def extends(self) -> bool:
        """Whether text is to enter the language model now, and not a speech token."""
        return self.bistream is not None and isinstance(self.bistream.next_input(), torch.Tensor)

    @property
    def drawn(self) -> Sequence[int]:
        """All ids so far, those that are no speech included: what sampling looks back on."""
        return self.history if self.bistream is None else self.bistream.history

    def vocoder_generator(self, call: int) -> torch.Generator:
        """The generator of the `call`-th vocoder call of this utterance."""
        return request_generator(self.job.request.seed, _VOCODER, self.index, call)


class Job:
    """A request inside the engine. Read its frames with `frames()`; the scheduler is the only one that changes it."""

    def __init__(self, request: SpeechRequest, plan: Plan, sample_rate: int) -> None:
        self.request = request
        self.prompt = plan.prompt
        self.lm_prompt_tokens = plan.lm_prompt_tokens
        self.sample_rate = sample_rate
        self.utterances: list[Utterance] = []
        self.decoding = 0  # index of the utterance the language model works on
        self.decoded_at = 0.0  # monotonic seconds at which the one before was decoded
        self.speaking = 0  # index of the utterance whose audio comes next
        self.cancelled = False
        self.finished = False
        self.samples_sent = 0
        self.samples_unread = 0
        self.first_audio_at: float | None = None
        self.submitted_at = time.monotonic()
        self.begun_at: float | None = None  # monotonic seconds of its first step
        self.place = 1  # among those that waited for their first audio when it came
        self._output: asyncio.Queue[Frame] = asyncio.Queue()
        self.on_read: Callable[[], None] = lambda: None

    def add_utterance(self, **fields) -> Utterance:
        index = len(self.utterances)
        generator = request_generator(self.request.seed, _SAMPLING, index)
        utterance = Utterance(self, index, generator=generator, **fields)
        self.utterances.append(utterance)
        return utterance

    @property
    def waits(self) -> bool:
        """For its first audio, and for nothing else, such as its text."""
        return self.samples_sent == 0 and not self.request.incremental

    @property
    def live(self) -> bool:
        """Whether the language model works on it."""
        return self.decoding < len(self.utterances) and self.utterances[self.decoding].slot is not None

    @property
    def waits_for_slot(self) -> bool:
        """Whether the language model would work on it, had it a slot."""
        if self.decoding >= len(self.utterances) or self.live:
            return False
        utterance = self.utterances[self.decoding]
        return not (utterance.decoded or utterance.text_wanted)

    @property
    def text_wanted(self) -> bool:
        """Whether the language model can do nothing for it before more text comes."""
        return self.decoding < len(self.utterances) and self.utterances[self.decoding].text_wanted

    @property
    def runs_dry_at(self) -> float | None:
        """Monotonic seconds at which a listener who started at the first sample has played all that was sent."""
        return None if self.first_audio_at is None else self.first_audio_at + self.samples_sent / self.sample_rate

    @property
    def seconds_ahead(self) -> float:
        """Audio sent beyond what that listener has played by now."""
        return 0.0 if self.runs_dry_at is None else self.runs_dry_at - time.monotonic()

    @property
    def seconds_unread(self) -> float:
        return self.samples_unread / self.sample_rate

    def send_audio(self, samples: torch.Tensor) -> None:
        """Queue `[L]` float32 samples for the reader."""
        if samples.numel() == 0:
            return
        if self.first_audio_at is None:
            self.first_audio_at = time.monotonic()
        self.samples_sent += samples.numel()
        self.samples_unread += samples.numel()
        self._output.put_nowait(Frame(FrameKind.AUDIO, samples.to(torch.float32).numpy().tobytes()))

    def segment_spoken(self) -> None:
        """All audio of the utterance at `speaking` was sent."""
        self._output.put_nowait(Frame.of(FrameKind.SEGMENT, end=self.samples_sent))
        self.speaking += 1

    def end(self) -> None:
        if self.samples_sent == 0:
            self.fail(RequestError("engine_error", "The model produced no audio for this text.", 500))
            return
        truncated = any(utterance.truncated for utterance in self.utterances)
        self._finish(
            Frame.of(
                FrameKind.END,
                finish_reason="length" if truncated else "stop",
                samples=self.samples_sent,
                text_tokens=sum(utterance.text_tokens for utterance in self.utterances),
                speech_tokens=sum(len(utterance.history) for utterance in self.utterances),
            )
        )

    def fail(self, error: Exception) -> None:
        self._finish(Frame.error(error))

    def _finish(self, frame: Frame) -> None:
        if not self.finished:
            self.finished = True
            self._output.put_nowait(frame)

    async def frames(self) -> AsyncIterator[Frame]:
        """Frames in order, ending with END or ERROR."""
        while True:
            frame = await self._output.get()
            if frame.kind is FrameKind.AUDIO:
                self.samples_unread -= len(frame.payload) // 4
                self.on_read()
            yield frame
            if frame.last:
                return


Sampler = Callable[[torch.Tensor, Sequence[Draw]], list[int | Exception]]
