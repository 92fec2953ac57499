"""The engine: who is inside, what is done next for whom, and what becomes of it.

Requests join and leave between steps, all of which are decided here, in one asyncio task. A step is a prefill, one
decode step of all live utterances (`runners.decoding`), or the next audio of some (`runners.synthesis`);
`runners.policy` says which, `runners.loop` runs it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from models.cosyvoice import CosyVoice
from models.token2wav import Audio, Turn
from runners import gauges
from runners.admission import Admission
from runners.decoding import Decoder
from runners.intake import new_job
from runners.loop import Loop
from runners.memory import MemoryBudget
from runners.modes import Plan, resolve
from runners.pace import Pace
from runners.policy import Policy, Shares, start_order
from runners.request import INCREMENTAL_TOKENS, RequestError, SpeechRequest
from runners.sequence import Job, Sampler, Utterance
from runners.settings import EngineSettings
from runners.stages import StageRecorder
from runners.step import Step
from runners.synthesis import Synthesizer

logger = logging.getLogger("cosyserve.engine")

NOT_FINITE = "nonfinite_audio"
_REPORT_SECONDS = 1.0  # at most, while there is work
_FEW_SLOTS = 4
_QUEUED = 8  # times the memory that requests inside may ask for, most of them waiting for it


class Scheduler:
    """Runs any mix of requests on one model. Use from one event loop: `start`, `submit`, `cancel`, `close`."""

    def __init__(
        self, model: CosyVoice, settings: EngineSettings | None = None, sampler: Sampler | None = None
    ) -> None:
        self.model = model
        self.settings = limits = settings or EngineSettings()
        self.jobs: list[Job] = []
        self._audio_rate = gauges.AudioRate()
        self._pace = Pace()
        self._policy = Policy(limits.low_water_seconds, limits.patience_seconds, limits.batch_seconds)
        self._memory = MemoryBudget(limits.memory_bytes)
        self._admission = Admission(limits.max_ttfa_seconds, limits.max_live, self._pace, self._audio_rate)
        self.stages = StageRecorder(self._admission.on_stage)
        self.decoder = Decoder(
            model,
            limits.max_live,
            self._decoded,
            self._fail,
            sampler=sampler,
            cuda_graphs=limits.cuda_graphs,
            upstream_compat=limits.upstream_compat,
        )
        self._synthesizer = Synthesizer(
            model.token2wav,
            self._pace,
            self.stages,
            self._made,
            aside=limits.overlap,
            upstream_compat=limits.upstream_compat,
        )
        model.token2wav.voices.on_lookup = partial(gauges.voice_looked_up, gauges.PROMPT_CACHE)
        self._reported: tuple[int, ...] = ()
        self._reported_at = 0.0
        self.loop = Loop(
            self._advance,
            self.decoder.settle,
            self._fail,
            self._left_aside,
            self.stages,
            self._audio_rate,
            model.token2wav.flow.device if limits.overlap else None,
        )

    # -- what the service calls ------------------------------------------------------------------------------------

    def start(self, on_death: Callable[[], None] = lambda: None) -> None:
        """Begin to work. `on_death` is called if the loop itself fails, after which no request would ever end."""
        self.loop.start(on_death)

    async def close(self) -> None:
        """Stop at once; whatever still runs ends with an error."""
        await self.loop.stop()
        for job in self.jobs:
            job.fail(RequestError("draining", "The engine is shutting down.", 503))
        await self.loop.shut_down()

    async def capture(self) -> None:
        """Before the first request: the flow's graphs, where they are wanted, in the thread that replays them."""
        if self.settings.cuda_graphs:
            await self.loop.call_aside(self.model.token2wav.flow.use_graphs)

    def forget(self) -> None:
        """How long things took so far: first calls take longer than any other."""
        self._pace.forget()
        self._admission.forget()

    async def submit(self, request: SpeechRequest) -> Job:
        """Admit a request. Raises RequestError: `overloaded`, `voice_not_found`, `unsupported_parameter`."""
        limit = self.settings.memory_bytes
        asked = sum(max(utterance.needs for utterance in job.utterances) for job in self.jobs)
        if len(self.jobs) >= self.settings.max_requests or (limit is not None and asked > _QUEUED * limit):
            raise RequestError("overloaded", "The engine is full. Try again shortly.", 429)
        if request.incremental and not request.continues and self._dictations() >= self._most_dictations:
            most = f"{self._most_dictations} texts that are still being written are as many as are spoken at once."
            raise RequestError("overloaded", f"{most} Try again shortly.", 429)
        self._admission.check(request, [job for job in self.jobs if not self._paused(job)])  # who stalls takes no place
        return self.admit(request, resolve(request, self.model, upstream_compat=self.settings.upstream_compat))

    def admit(self, request: SpeechRequest, plan: Plan) -> Job:
        """The same, whatever is inside already. Raises RequestError `invalid_value`."""
        job = new_job(request, plan, self.model, upstream_compat=self.settings.upstream_compat)
        job.on_read = self.loop.wake
        for utterance in job.utterances:
            utterance.state = self._synthesizer.begin(utterance)
            utterance.needs = self._synthesizer.bytes_of(utterance) + self.decoder.bytes_of(utterance)
        job.place = self._admission.place(request, self.jobs)
        self.jobs.append(job)
        self.loop.wake()
        return job

    def push_text(self, job: Job, text: str) -> None:
        """More text of an incremental request, in words that the tokenizer may read one by one. One with too much of it
        ends."""
        (utterance,) = job.utterances
        if utterance.bistream is None or job.finished:
            return
        ids = self.model.tokenizer.encode(text)
        utterance.text_tokens += len(ids)
        if utterance.text_tokens > INCREMENTAL_TOKENS:
            limit = f"An utterance whose text arrives has at most {INCREMENTAL_TOKENS} tokens."
            job.fail(RequestError("input_too_long", limit))
            self.cancel(job)  # a step may be under way: it leaves after that
            return
        with torch.inference_mode():
            utterance.bistream.push(ids)
        self.loop.wake()

    def end_text(self, job: Job) -> None:
        """An incremental request has all its text."""
        (utterance,) = job.utterances
        if utterance.bistream is None or utterance.decoded or job.finished:
            return
        with torch.inference_mode():
            utterance.bistream.finish()
        if utterance.bistream.done:  # there was none
            utterance.decoded = True
            self._decoded(utterance)
        self.loop.wake()

    @property
    def _most_dictations(self) -> int:
        """Texts that are still being written may hold half of the slots (one of one), for as long as they are: the rest
        is for who needs no more than the engine's own time."""
        return max(1, self.settings.max_live // 2)

    def _dictations(self) -> int:
        """Such texts, and those that have been written but are not decoded yet."""
        return sum(job.request.incremental and job.decoding < len(job.utterances) for job in self.jobs)

    def cancel(self, job: Job) -> None:
        """End a request that nobody listens to. Its slot is free before the next step."""
        job.cancelled = True
        self.loop.wake()

    # -- what comes next -------------------------------------------------------------------------------------------

    def _advance(self) -> Step | None:
        """Who has left leaves, then the next step."""
        for job in [job for job in self.jobs if job.cancelled]:
            self._drop(job)
        chosen = self._next_step()
        self._report()
        return chosen

    def _next_step(self) -> Step | None:
        ready = [utterance for job in self.jobs if (utterance := self._audio_ready(job)) is not None]
        turns = [self._synthesizer.turn(utterance) for utterance in ready]
        now, shares = time.monotonic(), Shares(self.jobs)
        rated = [
            (self._policy.urgency(utterance, size, now, self._pace, shares), size)
            for utterance, size in zip(ready, map(self._synthesizer.frames, turns), strict=True)
        ]
        chosen = self._policy.batch(rated, self._pace) if rated else []
        batch = [(ready[index], turns[index]) for index in chosen] if self.loop.aside is None else []
        if batch and rated[chosen[0]][0].presses:
            return self._synthesizer.step(batch)
        decoding = self.decoder.next_step(lambda: self._next_to_start(shares))
        if decoding is not None:
            return decoding
        return self._synthesizer.step(batch) if batch else None

    def _audio_ready(self, job: Job) -> Utterance | None:
        """The utterance of this job that has enough tokens for its next audio, if the reader keeps up."""
        if job.speaking >= len(job.utterances) or self._paused(job) or job in self.loop.busy:
            return None
        utterance = job.utterances[job.speaking]
        if not self._synthesizer.is_ready(utterance) or not self._has_room(utterance):
            return None
        utterance.ready_at = min(utterance.ready_at, time.monotonic())
        return utterance

    def _next_to_start(self, shares: Shares) -> Utterance | None:
        """Which utterance shall have the next free slot of the decoder."""
        free = self.decoder.free
        if not free:
            return None
        few = self.settings.max_live < _FEW_SLOTS
        dictated = sum(one.job.request.incremental for one in self.decoder.live)
        waiting = [
            job.utterances[job.decoding]
            for job in self.jobs
            if job.waits_for_slot
            and not self._paused(job)
            # Where there are some, the last slot is for a tenant that has none.
            and (free > 1 or few or not job.request.tenant or not shares.live(job.request.tenant))
            and (not job.request.incremental or dictated < self._most_dictations)
        ]
        patience = self.settings.patience_seconds
        first = min(waiting, key=lambda one: start_order(one, patience, shares), default=None)
        return first if first is not None and self._has_room(first) else None

    def _has_room(self, utterance: Utterance) -> bool:
        """Whether it may begin; then the memory it may come to is its own until it has spoken."""
        if utterance.reserved is None and self._memory.reserve(utterance.needs):
            utterance.reserved = utterance.needs
        return utterance.reserved is not None

    def _paused(self, job: Job) -> bool:
        return job.seconds_unread > self.settings.max_unread_seconds

    # -- what has come ---------------------------------------------------------------------------------------------

    def _decoded(self, utterance: Utterance) -> None:
        """It has all its tokens."""
        if utterance.slot is not None and utterance.bistream is None:  # which lasts as long as somebody writes
            self._admission.left(time.monotonic() - utterance.live_at, len(self.decoder.live))
        self.decoder.leave(utterance)
        utterance.job.decoding += 1
        utterance.job.decoded_at = time.monotonic()
        if utterance.truncated:
            logger.warning("an utterance reached its limit of %d tokens", utterance.max_tokens)

    def _made(self, utterance: Utterance, turn: Turn, audio: Audio | Exception) -> None:
        """Its neighbours have their audio, whatever became of this one."""
        job = utterance.job
        if job not in self.jobs:
            return
        try:
            if isinstance(audio, Exception):
                raise audio
            if not torch.isfinite(audio.samples).all():
                raise FloatingPointError
            self._spoken(utterance, turn, audio)
        except Exception as error:
            self._fail(job, error)

    def _spoken(self, utterance: Utterance, turn: Turn, audio: Audio) -> None:
        job = utterance.job
        utterance.ready_at = math.inf
        waited = job.waits
        job.send_audio(audio.samples)
        if waited and not job.waits:
            self._admission.heard(job)
        self._audio_rate.made(audio.samples.numel() / job.sample_rate)
        # Shared by all who are inside, speaking or waiting to: if each of them had a listener now, would it do?
        gauges.HEADROOM.set(self._audio_rate.per_second / max(1, len(self.jobs)))
        utterance.state = audio.state  # after the last turn without what the hops kept
        if not turn.last:
            return
        self._release(utterance)
        job.segment_spoken()
        if job.speaking == len(job.utterances):
            job.end()
            self._drop(job)

    def _release(self, utterance: Utterance) -> None:
        self._memory.release(utterance.reserved or 0)
        utterance.reserved = None

    def _give_back(self, job: Job) -> None:
        for utterance in job.utterances:
            self._release(utterance)

    def _left_aside(self, step: Step) -> None:
        for job in step.jobs:
            if job not in self.jobs:  # it left meanwhile, but its memory was in use
                self._give_back(job)

    def _drop(self, job: Job) -> None:
        if job not in self.loop.busy:
            self._give_back(job)
        for utterance in job.utterances:
            self.decoder.leave(utterance)
            utterance.state = replace(utterance.state, prefix=None, vocoder=None, seam=None)  # all that is large
        if job in self.jobs:
            self.jobs.remove(job)

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, FloatingPointError):
            gauges.NONFINITE.inc()
            error = RequestError(NOT_FINITE, "The model produced values that are not finite.", 500)
        if not isinstance(error, RequestError):
            logger.error("a request failed", exc_info=error)
        job.fail(error)
        self._drop(job)

    def _report(self) -> None:
        load = len(self.jobs), len(self.decoder.live), sum(job.samples_sent == 0 for job in self.jobs)
        now = time.monotonic()
        # At most steps nothing is written: each gauge is a file that several processes share.
        if load == self._reported and now < self._reported_at + _REPORT_SECONDS:
            return
        self._reported, self._reported_at = load, now
        for gauge, value in zip((gauges.REQUESTS, gauges.LIVE, gauges.QUEUE), load, strict=True):
            gauge.set(value)
        gauges.KV_CACHE_BYTES.set(self.decoder.bytes)
        gauges.PREFIX_CACHE_BYTES.set(self._memory.reserved)
        token2wav = self.model.token2wav
        gauges.VOICE_CACHE_BYTES.labels(gauges.PROMPT_CACHE).set(token2wav.voices.bytes)
        if token2wav.flow.device.type == "cuda":
            gauges.GPU_MEMORY_BYTES.set(torch.cuda.memory_reserved(token2wav.flow.device))
