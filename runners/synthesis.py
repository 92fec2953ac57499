"""The audio side of the engine: what could be made now of an utterance's tokens, and the step that makes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from models.errors import ModelError
from models.token2wav import Audio, StreamState, Token2Wav, Turn
from runners.intake import expected_tokens
from runners.pace import Pace
from runners.request import RequestError
from runners.sequence import Utterance
from runners.stages import StageRecorder
from runners.step import Step


class Synthesizer:
    """`pace` learns from each step. `made` is called with each turn, and its audio or what went wrong with it."""

    def __init__(
        self,
        token2wav: Token2Wav,
        pace: Pace,
        stages: StageRecorder,
        made: Callable[[Utterance, Turn, Audio | Exception], None],
        *,
        aside: bool = False,
        upstream_compat: bool = False,
    ) -> None:
        self._token2wav, self._pace, self._stages, self._made = token2wav, pace, stages, made
        self._aside, self._upstream_compat = aside, upstream_compat

    def begin(self, utterance: Utterance) -> StreamState:
        """Of an utterance that has no audio yet. Raises RequestError for a speed that this model cannot do."""
        job, rng, compat = utterance.job, utterance.vocoder_generator, self._upstream_compat
        speed, expected = job.request.speed, expected_tokens(utterance)
        try:
            if job.request.stream:
                return self._token2wav.new_stream(
                    job.prompt, speed=speed, rng=rng, upstream_compat=compat, expected_tokens=expected
                )
            return self._token2wav.whole((), job.prompt, speed=speed, rng=rng).state
        except ModelError as error:  # above all: a speed that a stream's hops are too short for
            raise RequestError("invalid_value", f"This model cannot speak so: {error.message}.") from error

    def bytes_of(self, utterance: Utterance) -> int:
        """What the flow of a stream may come to keep for its later hops."""
        job = utterance.job
        return self._token2wav.stream_bytes(job.prompt, expected_tokens(utterance)) if job.request.stream else 0

    def is_ready(self, utterance: Utterance) -> bool:
        """Whether there are tokens for its next audio."""
        return utterance.decoded or (utterance.job.request.stream and self._has_hop(utterance))

    def turn(self, utterance: Utterance) -> Turn:
        """Its next audio."""
        last = utterance.decoded and not (utterance.job.request.stream and self._has_hop(utterance))
        return Turn(utterance.state, list(utterance.tokens), last)

    def frames(self, turn: Turn) -> int:
        """Mel frames of its work."""
        return self._token2wav.frames(turn)

    def step(self, batch: Sequence[tuple[Utterance, Turn]]) -> Step:
        """Makes these turns together."""
        turns = [turn for _, turn in batch]
        jobs = [utterance.job for utterance, _ in batch]
        frames = sum(map(self.frames, turns))

        def on_stage(stage: str, began: float, ended: float, indices: Sequence[int]) -> None:
            if indices:
                self._stages.record(stage, began, ended, [jobs[index] for index in indices])

        def compute() -> tuple[list[Audio | Exception], float]:
            began = time.monotonic()
            audio = self._token2wav.synthesize(turns, on_stage)
            return audio, time.monotonic() - began

        def apply(result: tuple[list[Audio | Exception], float]) -> None:
            audio, seconds = result
            self._pace.took(frames, seconds)
            for (utterance, turn), one in zip(batch, audio, strict=True):
                self._made(utterance, turn, one)

        return Step(compute, apply, jobs[0], jobs, aside=self._aside)

    def _has_hop(self, utterance: Utterance) -> bool:
        """Whether a stream has the tokens of its next hop, their look-ahead included."""
        return len(utterance.tokens) >= self._token2wav.next_hop(utterance.state)
