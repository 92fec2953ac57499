"""The engine's loop: one asyncio task decides every step, one thread computes.

Requests join and leave between steps. A step is a prefill, one decode step of all live utterances, or the next audio of
some; `runners.policy` decides which.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch

from models.bistream import DEFAULT_MIX, Bistream
from models.cosyvoice import CosyVoice
from models.decode_graphs import DecodeGraphs
from models.device import own_stream, to_host
from models.errors import ModelError
from models.sampling import Draw, SilentFilter, ids_below_min_length, ras_sample_batch
from models.speech_lm import KVCache, SpeechLM
from models.token2wav import Audio, StreamState, Turn
from runners import gauges
from runners.admission import Admission
from runners.frames import FrameKind
from runners.memory import MemoryBudget
from runners.modes import Plan, SegmentPlan, resolve, silent_voice
from runners.pace import Pace
from runners.policy import Policy, Shares, start_order
from runners.request import INCREMENTAL_TOKENS, RequestError, SpeechRequest
from runners.sequence import Job, Sampler, Utterance, sampling_config
from runners.stages import DECODE, PREFILL, StageRecorder

logger = logging.getLogger("cosyserve.engine")

NOT_FINITE = "nonfinite_audio"
_REPORT_SECONDS = 1.0  # at most, while there is work
_QUEUED = 8  # times the memory that requests inside may ask for, most of them waiting for it
_EXPECTED_RATIO = 10  # speech tokens per text token; twice as many are possible, some six to eight are usual
WARM_UP_TEXT = "one two three"
WARM_UP_TOKENS = 60  # enough for a first hop, a later one is the same code


@dataclass(frozen=True)
class EngineSettings:
    """Limits of one engine.

    `max_live`: utterances decoded together. `max_requests`: requests in the engine, the rest is refused with 429.
    `max_ttfa_seconds`: see Admission.
    `max_unread_seconds`: audio a slow reader may leave unread before its request pauses. `low_water_seconds`,
    `patience_seconds`, `batch_seconds`: see Policy. `memory_bytes`: for all that utterances keep; None: unlimited.
    `cuda_graphs`: decode steps are captured once per size of batch and replayed, and so is the flow's work per frame.
    `overlap`: audio is made in a thread of its own, on a CUDA device in a stream of its own, while decoding goes on.
    `upstream_compat`: keep upstream's length rules of CosyVoice 3 (stop tokens never masked, prefix counted).
    """

    max_live: int = 16
    max_requests: int = 64
    max_ttfa_seconds: float | None = None
    max_unread_seconds: float = 30.0
    patience_seconds: float = 2.0
    low_water_seconds: float = 0.5
    batch_seconds: float = 0.0
    memory_bytes: int | None = None
    cuda_graphs: bool = False
    overlap: bool = False
    upstream_compat: bool = False


@dataclass(frozen=True)
class Step:
    """Work for the device thread. `compute` runs there, `apply` takes its result on the event loop; when either
    raises, `owner` is ended.

    `jobs`: whom it works for. `stage`: what it is; None: `compute` itself records what it does. `aside`: the steps
    after it do not wait for it.
    """

    compute: Callable[[], object]
    apply: Callable[[object], None]
    owner: Job
    jobs: Sequence[Job]
    stage: str | None = None
    aside: bool = False


class Scheduler:
    """Runs any mix of requests on one model. Use from one event loop: `start`, `submit`, `cancel`, `close`."""

    def __init__(
        self, model: CosyVoice, settings: EngineSettings | None = None, sampler: Sampler | None = None
    ) -> None:
        self.model = model
        self.settings = settings or EngineSettings()
        self.sampler: Sampler = sampler or self._ras
        self.jobs: list[Job] = []
        self.live: list[Utterance] = []  # in the order of their KV cache slots
        self.steps = 0  # decode steps so far
        self._freed: list[int] = []  # slots that the cache still holds
        self._cache = model.lm.new_cache(self.settings.max_live)
        self._graphs = DecodeGraphs(model.lm, self._cache) if self.settings.cuda_graphs else None
        self._audio_rate = gauges.AudioRate()
        self._pace = Pace()
        limits = self.settings
        self._policy = Policy(limits.low_water_seconds, limits.patience_seconds, limits.batch_seconds)
        self._memory = MemoryBudget(self.settings.memory_bytes)
        self._admission = Admission(limits.max_ttfa_seconds, limits.max_live, self._pace, self._audio_rate)
        self.stages = StageRecorder(self._admission.on_stage)
        model.token2wav.voices.on_lookup = partial(gauges.voice_looked_up, gauges.PROMPT_CACHE)
        self._reported: tuple[int, ...] = ()
        self._reported_at = 0.0
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._speech = self._device
        if limits.overlap:
            device = model.token2wav.flow.device
            self._speech = ThreadPoolExecutor(1, "speech", initializer=own_stream, initargs=(device,))
        self._aside: tuple[Step, asyncio.Future[object]] | None = None  # under way, beside the language model's steps
        self._worked_until = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task | None = None

    # -- what the service calls ------------------------------------------------------------------------------------

    def start(self, on_death: Callable[[], None] = lambda: None) -> None:
        """Begin to work. `on_death` is called if the loop itself fails, after which no request would ever end."""

        def ended(task: asyncio.Task) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.critical("the engine's loop failed", exc_info=error)
                on_death()

        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(ended)

    async def close(self) -> None:
        """Stop at once; whatever still runs ends with an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for job in self.jobs:
            job.fail(RequestError("draining", "The engine is shutting down.", 503))
        for pool in (self._device, self._speech):
            await asyncio.to_thread(pool.shutdown)

    async def warm_up(self) -> None:
        """Speak once, streamed and whole, so that no user pays for first calls.

        Raises RuntimeError, and FloatingPointError where the model's precision does not hold its values.
        """
        if self.settings.cuda_graphs:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._speech, self.model.token2wav.flow.use_graphs)
        name = next(iter(sorted(self.model.presets)), None)
        request = SpeechRequest(
            segments=(WARM_UP_TEXT,),
            voice=name,
            conditioning=None if name else silent_voice(self.model.config),
        )
        spoken = resolve(request, self.model)
        # Given tokens fix the work of the hop and the one-pass path, whatever the model says to a text.
        given = Plan((SegmentPlan((), 0, (0,) * WARM_UP_TOKENS),), (), spoken.prompt)
        for plan, stream in ((spoken, True), (given, True), (given, False)):
            async for frame in self._admit(replace(request, stream=stream), plan).frames():
                if frame.kind is FrameKind.ERROR:
                    error = frame.json()
                    kind = FloatingPointError if error["code"] == NOT_FINITE else RuntimeError
                    raise kind(f"warm-up failed: {error['message']}")

    async def submit(self, request: SpeechRequest) -> Job:
        """Admit a request. Raises RequestError: `overloaded`, `voice_not_found`, `unsupported_parameter`."""
        limit = self.settings.memory_bytes
        asked = sum(max(utterance.needs for utterance in job.utterances) for job in self.jobs)
        if len(self.jobs) >= self.settings.max_requests or (limit is not None and asked > _QUEUED * limit):
            raise RequestError("overloaded", "The engine is full. Try again shortly.", 429)
        self._admission.check(request, [job for job in self.jobs if not self._paused(job)])  # who stalls takes no place
        return self._admit(request, resolve(request, self.model, upstream_compat=self.settings.upstream_compat))

    def _admit(self, request: SpeechRequest, plan: Plan) -> Job:
        job = Job(request, plan, self.model.config.sample_rate)
        job.on_read = self._wake.set
        lm, config = self.model.lm, self.model.config
        sampling = sampling_config(request.sampling, config.sampling)
        for index, segment in enumerate(plan.segments):
            min_tokens, max_tokens = lm.length_limits(INCREMENTAL_TOKENS if request.incremental else segment.counted)
            utterance = job.add_utterance(
                text_ids=segment.text_ids,
                text_tokens=segment.counted,
                min_tokens=0 if request.incremental else min_tokens,  # which is not known until the text has ended
                max_tokens=min(
                    max_tokens,
                    self.model.token2wav.room(job.prompt),
                    request.sampling.max_new_tokens or max_tokens,
                ),
                sampling=sampling,
                silent_filter=SilentFilter.of_version(config.version),
                silence=frozenset(config.folder.silence_tokens if index == 0 else ()),
                silence_kept=config.folder.leading_silence_kept,
                bistream=self._bistream(segment, plan) if request.incremental else None,
            )
            if segment.speech_tokens:
                utterance.tokens = list(segment.speech_tokens)
                utterance.decoded = True
            utterance.state = self._begin(utterance)
            utterance.needs = self._needs(utterance)
        job.place = self._admission.place(request, self.jobs)
        self.jobs.append(job)
        self._wake.set()
        return job

    def _bistream(self, segment: SegmentPlan, plan: Plan) -> Bistream:
        with torch.inference_mode():
            return Bistream(
                self.model.lm,
                segment.text_ids,
                plan.lm_prompt_tokens,
                end_of_prompt_id=self.model.tokenizer.end_of_prompt_id,
                mix=self.model.config.llm.get("mix_ratio") or DEFAULT_MIX,
                upstream_compat=self.settings.upstream_compat,
            )

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
        self._wake.set()

    def end_text(self, job: Job) -> None:
        """An incremental request has all its text."""
        (utterance,) = job.utterances
        if utterance.bistream is None or job.finished:
            return
        with torch.inference_mode():
            utterance.bistream.finish()
        if utterance.bistream.done:  # there was none
            self._decoded(utterance)
        self._wake.set()

    def cancel(self, job: Job) -> None:
        """End a request that nobody listens to. Its slot is free before the next step."""
        job.cancelled = True
        self._wake.set()

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._aside is not None and self._aside[1].done():
                (step, work), self._aside = self._aside, None
                await self._take(step, work)
                for job in step.jobs:
                    if job not in self.jobs:  # it left meanwhile, but its memory was in use
                        self._give_back(job)
            for job in [job for job in self.jobs if job.cancelled]:
                self._drop(job)
            chosen = self._next_step()
            self._report()
            if chosen is None:
                self._wake.clear()
                await self._wake.wait()
            elif chosen.aside:
                work = loop.run_in_executor(self._speech, self._compute, chosen)
                work.add_done_callback(lambda _: self._wake.set())
                self._aside = chosen, work
            else:
                await self._take(chosen, loop.run_in_executor(self._device, self._compute, chosen))

    async def _take(self, step: Step, work: asyncio.Future[object]) -> None:
        """The result of a step. States change here only, while no step of the language model is under way."""
        try:
            step.apply(await work)
        except Exception as error:  # whatever it is, it ends one request and never the loop
            self._fail(step.owner, error)

    def _report(self) -> None:
        load = len(self.jobs), len(self.live), sum(job.samples_sent == 0 for job in self.jobs)
        now = time.monotonic()
        # At most steps nothing is written: each gauge is a file that several processes share.
        if load == self._reported and now < self._reported_at + _REPORT_SECONDS:
            return
        self._reported, self._reported_at = load, now
        for gauge, value in zip((gauges.REQUESTS, gauges.LIVE, gauges.QUEUE), load, strict=True):
            gauge.set(value)
        positions = sum(self._cache.lengths) if self.live else 0  # those of who left go before the next step
        gauges.KV_CACHE_BYTES.set(positions * _position_bytes(self.model.lm, self._cache))
        gauges.PREFIX_CACHE_BYTES.set(self._memory.reserved)
        token2wav = self.model.token2wav
        gauges.VOICE_CACHE_BYTES.labels(gauges.PROMPT_CACHE).set(token2wav.voices.bytes)
        if token2wav.flow.device.type == "cuda":
            gauges.GPU_MEMORY_BYTES.set(torch.cuda.memory_reserved(token2wav.flow.device))

    @torch.inference_mode()
    def _compute(self, step: Step) -> object:
        """On the step's thread: what has left gives its place in the cache back, then the step's work."""
        began = time.monotonic()
        for job in step.jobs:
            if job.begun_at is None:
                job.begun_at = began
                gauges.QUEUE_WAIT.observe(began - job.submitted_at)
        try:
            while self._freed and not step.aside:
                self._cache.remove(self._freed.pop(0))
            return step.compute()
        finally:
            ended = time.monotonic()
            self._audio_rate.worked(max(0.0, ended - max(began, self._worked_until)))  # at once is once
            self._worked_until = max(self._worked_until, ended)
            if step.stage is not None:
                self.stages.record(step.stage, began, ended, step.jobs)

    def _next_step(self) -> Step | None:
        ready = [utterance for job in self.jobs if (utterance := self._audio_ready(job)) is not None]
        turns = [self._turn_of(utterance) for utterance in ready]
        sizes = [self.model.token2wav.frames(turn) for turn in turns]
        now, shares = time.monotonic(), Shares(self.jobs)
        rated = [
            (self._policy.urgency(utterance, size, now, self._pace, shares), size)
            for utterance, size in zip(ready, sizes, strict=True)
        ]
        chosen = self._policy.batch(rated, self._pace) if rated else []
        batch = [(ready[index], turns[index]) for index in chosen] if self._aside is None else []
        if batch and rated[chosen[0]][0].presses:
            return self._synthesis(batch)
        starting = next((one for one in self.live if one.extends), None) or self._next_to_prefill(shares)
        if starting is not None:
            return self._prefill(starting)
        if not all(one.text_wanted for one in self.live):
            return self._decode()
        return self._synthesis(batch) if batch else None

    def _audio_ready(self, job: Job) -> Utterance | None:
        """The utterance of this job that has enough tokens for its next audio, if the reader keeps up."""
        if job.speaking >= len(job.utterances) or self._paused(job) or job in self._busy:
            return None
        utterance = job.utterances[job.speaking]
        ready = utterance.decoded or (job.request.stream and self._has_hop(utterance))
        if not ready or not self._has_room(utterance):
            return None
        utterance.ready_at = min(utterance.ready_at, time.monotonic())
        return utterance

    def _next_to_prefill(self, shares: Shares) -> Utterance | None:
        free = self.settings.max_live - len(self.live)
        if not free:
            return None
        waiting = [
            job.utterances[job.decoding]
            for job in self.jobs
            if job.waits_for_slot
            and not self._paused(job)
            # The last slot is for a tenant that has none.
            and (free > 1 or not job.request.tenant or not shares.live(job.request.tenant))
        ]
        patience = self.settings.patience_seconds
        first = min(waiting, key=lambda one: start_order(one, patience, shares), default=None)
        return first if first is not None and self._has_room(first) else None

    def _has_room(self, utterance: Utterance) -> bool:
        """Whether it may begin; then the memory it may come to is its own until it has spoken."""
        if utterance.reserved is None and self._memory.reserve(utterance.needs):
            utterance.reserved = utterance.needs
        return utterance.reserved is not None

    @property
    def _busy(self) -> Sequence[Job]:
        """Those whose audio is being made aside."""
        return () if self._aside is None else self._aside[0].jobs

    def _paused(self, job: Job) -> bool:
        return job.seconds_unread > self.settings.max_unread_seconds

    # -- steps -----------------------------------------------------------------------------------------------------

    def _prefill(self, utterance: Utterance) -> Step:
        """Of an utterance that begins, or, in its slot, of one whose next text is there."""
        held, lm = utterance.slot, self.model.lm
        arrived = None if utterance.bistream is None else utterance.bistream.next_input()

        def compute() -> int:
            slot = self._cache.add() if held is None else held
            try:
                if isinstance(arrived, torch.Tensor):
                    lm_input = arrived
                else:
                    lm_input = lm.build_input(utterance.text_ids, utterance.job.lm_prompt_tokens)
                (logp,) = to_host([lm.extend(self._cache, slot, lm_input)])  # sampling draws from CPU generators
                (token,) = self._sample([utterance], logp[None])
                if isinstance(token, Exception):
                    raise token
                return token
            except Exception:
                if held is None:
                    self._cache.remove(slot)
                raise

        def apply(token: int) -> None:
            if held is None:
                utterance.slot, utterance.live_at = len(self.live), time.monotonic()
                self.live.append(utterance)
            self._accept(utterance, token)

        return Step(compute, apply, utterance.job, (utterance.job,), PREFILL)  # type: ignore[arg-type]

    def _decode(self) -> Step:
        waiting = [slot for slot, one in enumerate(self.live) if one.text_wanted]
        utterances = [one for one in self.live if not one.text_wanted]
        rows = 1 + max(one.slot for one in utterances if one.slot is not None)
        # A batch is the first so many slots: one that waits among them is decoded in vain, and its length stays.
        fed = [one.history[-1] if one.history else 0 for one in self.live[:rows]]

        def compute() -> list[int | Exception]:
            last = torch.tensor(fed)
            logp = self._graphs.decode(last) if self._graphs else self.model.lm.decode(self._cache, last)
            idle = [slot for slot in waiting if slot < rows]
            for slot in idle:
                self._cache.take_back(slot)
            (logp,) = to_host([logp])
            if idle:
                logp = logp[[slot for slot in range(rows) if slot not in idle]]
            return self._sample(utterances, logp)

        def apply(tokens: list[int | Exception]) -> None:
            self.steps += 1
            for utterance, token in zip(utterances, tokens, strict=True):
                if isinstance(token, Exception):
                    self._fail(utterance.job, token)
                else:
                    self._accept(utterance, token)

        # A decode step that fails as a whole (out of memory) ends the request that joined last.
        newest = max(utterances, key=lambda utterance: utterance.job.submitted_at)
        jobs = [utterance.job for utterance in utterances]
        return Step(compute, apply, newest.job, jobs, DECODE)  # type: ignore[arg-type]

    def _synthesis(self, batch: list[tuple[Utterance, Turn]]) -> Step:
        token2wav = self.model.token2wav
        turns = [turn for _, turn in batch]
        jobs = [utterance.job for utterance, _ in batch]
        frames = sum(token2wav.frames(turn) for turn in turns)

        def on_stage(stage: str, began: float, ended: float, indices: Sequence[int]) -> None:
            if indices:
                self.stages.record(stage, began, ended, [jobs[index] for index in indices])

        def compute() -> tuple[list[Audio | Exception], float]:
            began = time.monotonic()
            audio = token2wav.synthesize(turns, on_stage)
            return audio, time.monotonic() - began

        def apply(result: tuple[list[Audio | Exception], float]) -> None:
            audio, seconds = result
            self._pace.took(frames, seconds)
            for (utterance, turn), one in zip(batch, audio, strict=True):
                if utterance.job not in self.jobs:
                    continue
                if isinstance(one, Exception):
                    self._fail(utterance.job, one)
                    continue
                try:
                    self._spoken(utterance, turn, one)
                except Exception as error:  # its neighbours have their audio
                    self._fail(utterance.job, error)

        return Step(compute, apply, jobs[0], jobs, aside=self.settings.overlap)  # type: ignore[arg-type]

    def _turn_of(self, utterance: Utterance) -> Turn:
        last = utterance.decoded and not (utterance.job.request.stream and self._has_hop(utterance))
        return Turn(utterance.state, list(utterance.tokens), last)

    def _has_hop(self, utterance: Utterance) -> bool:
        """Whether a stream has the tokens of its next hop, their look-ahead included."""
        return len(utterance.tokens) >= self.model.token2wav.next_hop(utterance.state)

    def _spoken(self, utterance: Utterance, turn: Turn, audio: Audio) -> None:
        job = utterance.job
        if not torch.isfinite(audio.samples).all():
            self._fail(job, FloatingPointError())
            return
        utterance.ready_at = math.inf
        waited = job.waits
        job.send_audio(audio.samples)
        if waited and not job.waits:
            self._admission.heard(job)
        self._audio_rate.made(audio.samples.numel() / job.sample_rate)
        # Shared by all who are inside, speaking or waiting to: if each of them had a listener now, would it do?
        gauges.HEADROOM.set(self._audio_rate.per_second / max(1, len(self.jobs)))
        if not turn.last:
            utterance.state = audio.state
            return
        utterance.state = audio.state  # without what the hops kept
        self._release(utterance)
        job.segment_spoken()
        if job.speaking == len(job.utterances):
            job.end()
            self._drop(job)

    # -- state changes ---------------------------------------------------------------------------------------------

    def _sample(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        """Of each row of `[B, vocab]` the next token, or what went wrong with that utterance."""
        if any(one.bistream is not None for one in utterances):
            return self._sample_bistream(utterances, logp)
        return self._draw(utterances, logp)

    def _sample_bistream(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        """As `_sample`, where the format of text and speech by turns forces some ids and forbids others."""
        tokens: list[int | Exception | None] = [
            None if one.bistream is None else one.bistream.forced for one in utterances
        ]
        free = [index for index, token in enumerate(tokens) if token is None]
        if free:
            bistreams = [utterances[index].bistream for index in free]
            rows = [logp[i] if one is None else one.mask(logp[i]) for i, one in zip(free, bistreams, strict=True)]
            drawn = self._draw([utterances[index] for index in free], torch.stack(rows))
            for index, token in zip(free, drawn, strict=True):
                tokens[index] = token
        return tokens  # type: ignore[return-value]

    def _draw(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        below = ids_below_min_length(self.model.lm, upstream_compat=self.settings.upstream_compat)
        draws = [
            Draw(
                one.drawn,
                one.generator,
                below if len(one.history) < one.min_tokens else range(0),
                one.sampling,
                one.job.request.sampling.temperature or 1.0,
            )
            for one in utterances
        ]
        return self.sampler(logp, draws)

    def _ras(self, logp: torch.Tensor, draws: Sequence[Draw]) -> list[int | Exception]:
        return ras_sample_batch(logp, draws, self.model.config.sampling)

    def _accept(self, utterance: Utterance, token: int) -> None:
        bistream = utterance.bistream
        if bistream is not None:
            with torch.inference_mode():
                speech = bistream.accept(token)
            if speech is not None:
                utterance.accept(speech)
            utterance.decoded |= bistream.done
            utterance.truncated |= bistream.cut
        elif token in self.model.lm.stop_ids:
            utterance.decoded = True
        else:
            utterance.accept(token)
        if utterance.decoded:
            self._admission.left(time.monotonic() - utterance.live_at, len(self.live))
            self._decoded(utterance)
            if utterance.truncated:
                logger.warning("an utterance reached its limit of %d tokens", utterance.max_tokens)

    def _decoded(self, utterance: Utterance) -> None:
        utterance.decoded = True
        self._leave(utterance)
        utterance.job.decoding += 1
        utterance.job.decoded_at = time.monotonic()

    def _leave(self, utterance: Utterance) -> None:
        """Give the slot back. The last live utterance moves into it here, and in the cache before the next step."""
        slot = utterance.slot
        if slot is None:
            return
        self._freed.append(slot)
        last = self.live.pop()
        if last is not utterance:
            self.live[slot] = last
            last.slot = slot
        utterance.slot = None

    def _release(self, utterance: Utterance) -> None:
        self._memory.release(utterance.reserved or 0)
        utterance.reserved = None

    def _give_back(self, job: Job) -> None:
        for utterance in job.utterances:
            self._release(utterance)

    def _drop(self, job: Job) -> None:
        if job not in self._busy:
            self._give_back(job)
        for utterance in job.utterances:
            self._leave(utterance)
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

    def _begin(self, utterance: Utterance) -> StreamState:
        """Of an utterance that has no audio yet. Raises RequestError for a speed that this model cannot do."""
        job, token2wav, rng = utterance.job, self.model.token2wav, utterance.vocoder_generator
        speed, compat = job.request.speed, self.settings.upstream_compat
        try:
            if job.request.stream:
                return token2wav.new_stream(
                    job.prompt, speed=speed, rng=rng, upstream_compat=compat, expected_tokens=_longest(utterance)
                )
            return token2wav.whole((), job.prompt, speed=speed, rng=rng).state
        except ModelError as error:  # above all: a speed that a stream's hops are too short for
            raise RequestError("invalid_value", f"This model cannot speak so: {error.message}.") from error

    def _needs(self, utterance: Utterance) -> int:
        """Bytes that it comes to: keys and values of the language model and, of a stream, what the flow keeps."""
        prompt, longest = utterance.job.prompt, _longest(utterance)
        coming = 0 if utterance.bistream is None else INCREMENTAL_TOKENS
        positions = len(utterance.text_ids) + coming + len(utterance.job.lm_prompt_tokens) + longest
        flow = self.model.token2wav.stream_bytes(prompt, longest) if utterance.job.request.stream else 0
        return flow + (0 if utterance.decoded else positions * _position_bytes(self.model.lm, self._cache))


def _longest(utterance: Utterance) -> int:
    """Speech tokens that an utterance hardly ever exceeds, or has already."""
    text = utterance.text_tokens if utterance.bistream is None else INCREMENTAL_TOKENS
    return max(min(utterance.max_tokens, _EXPECTED_RATIO * text), len(utterance.tokens))


def _position_bytes(lm: SpeechLM, cache: KVCache) -> int:
    """Of one position of a sequence in the key-value cache."""
    config = lm.backbone.config
    return 2 * config.layers * config.kv_heads * config.head_dim * cache.keys[0].element_size()
