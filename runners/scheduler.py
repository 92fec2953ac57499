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

import torch

from models.cosyvoice import CosyVoice
from models.decode_graphs import DecodeGraphs
from models.errors import ModelError
from models.sampling import Draw, SilentFilter, ids_below_min_length, ras_sample_batch
from models.speech_lm import KVCache, SpeechLM
from models.token2wav import Audio, StreamState, Turn
from runners import gauges
from runners.frames import FrameKind
from runners.memory import MemoryBudget
from runners.modes import Plan, SegmentPlan, resolve, silent_voice
from runners.pace import Pace
from runners.policy import Policy, start_order
from runners.request import RequestError, SpeechRequest
from runners.sequence import Job, Sampler, Utterance, sampling_config

logger = logging.getLogger("cosyserve.engine")

NOT_FINITE = "nonfinite_audio"
_QUEUED = 8  # times the memory that requests inside may ask for, most of them waiting for it
_EXPECTED_RATIO = 10  # speech tokens per text token; twice as many are possible, some six to eight are usual
WARM_UP_TEXT = "one two three"
WARM_UP_TOKENS = 60  # enough for a first hop, a later one is the same code


@dataclass(frozen=True)
class EngineSettings:
    """Limits of one engine.

    `max_live`: utterances decoded together. `max_requests`: requests in the engine, the rest is refused with 429.
    `max_unread_seconds`: audio a slow reader may leave unread before its request pauses. `low_water_seconds`,
    `patience_seconds`, `batch_seconds`: see Policy. `memory_bytes`: for all that utterances keep; None: unlimited.
    `cuda_graphs`: decode steps are captured once per size of batch and replayed.
    `upstream_compat`: keep upstream's length rules of CosyVoice 3 (stop tokens never masked, prefix counted).
    """

    max_live: int = 16
    max_requests: int = 64
    max_unread_seconds: float = 30.0
    patience_seconds: float = 2.0
    low_water_seconds: float = 0.5
    batch_seconds: float = 0.3
    memory_bytes: int | None = None
    cuda_graphs: bool = False
    upstream_compat: bool = False


@dataclass(frozen=True)
class Step:
    """Work for the device thread. `compute` runs there, `apply` takes its result on the event loop; when either
    raises, `owner` is ended."""

    compute: Callable[[], object]
    apply: Callable[[object], None]
    owner: Job


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
        self._reported = (-1, -1, -1)
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
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
        await asyncio.to_thread(self._device.shutdown)

    async def warm_up(self) -> None:
        """Speak once, streamed and whole, so that no user pays for first calls.

        Raises RuntimeError, and FloatingPointError where the model's precision does not hold its values.
        """
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
        return self._admit(request, resolve(request, self.model, upstream_compat=self.settings.upstream_compat))

    def _admit(self, request: SpeechRequest, plan: Plan) -> Job:
        job = Job(request, plan, self.model.config.sample_rate)
        job.on_read = self._wake.set
        lm, config = self.model.lm, self.model.config
        sampling = sampling_config(request.sampling, config.sampling)
        for index, segment in enumerate(plan.segments):
            min_tokens, max_tokens = lm.length_limits(segment.counted)
            utterance = job.add_utterance(
                text_ids=segment.text_ids,
                text_tokens=segment.counted,
                min_tokens=min_tokens,
                max_tokens=min(
                    max_tokens,
                    self.model.token2wav.room(job.prompt),
                    request.sampling.max_new_tokens or max_tokens,
                ),
                sampling=sampling,
                silent_filter=SilentFilter.of_version(config.version),
                silence=frozenset(config.folder.silence_tokens if index == 0 else ()),
                silence_kept=config.folder.leading_silence_kept,
            )
            if segment.speech_tokens:
                utterance.tokens = list(segment.speech_tokens)
                utterance.decoded = True
            utterance.state = self._begin(utterance)
            utterance.needs = self._needs(utterance)
        self.jobs.append(job)
        self._wake.set()
        return job

    def cancel(self, job: Job) -> None:
        """End a request that nobody listens to. Its slot is free before the next step."""
        job.cancelled = True
        self._wake.set()

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for job in [job for job in self.jobs if job.cancelled]:
                self._drop(job)
            step = self._next_step()
            self._report()
            if step is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                result = await loop.run_in_executor(self._device, self._compute, step)
                step.apply(result)
            except Exception as error:  # whatever it is, it ends one request and never the loop
                self._fail(step.owner, error)

    def _report(self) -> None:
        load = len(self.jobs), len(self.live), sum(job.samples_sent == 0 for job in self.jobs)
        if load == self._reported:  # at most steps; a gauge that several processes share costs a write to a file
            return
        self._reported = load
        for gauge, value in zip((gauges.REQUESTS, gauges.LIVE, gauges.QUEUE), load, strict=True):
            gauge.set(value)

    @torch.inference_mode()
    def _compute(self, step: Step) -> object:
        """On the device thread: what has left gives its memory back, then the step's work."""
        began = time.monotonic()
        try:
            while self._freed:
                self._cache.remove(self._freed.pop(0))
            return step.compute()
        finally:
            self._audio_rate.worked(time.monotonic() - began)

    def _next_step(self) -> Step | None:
        ready = [utterance for job in self.jobs if (utterance := self._audio_ready(job)) is not None]
        turns = [self._turn_of(utterance) for utterance in ready]
        sizes = [self.model.token2wav.frames(turn) for turn in turns]
        now = time.monotonic()
        rated = [
            (self._policy.urgency(utterance, size, now, self._pace), size)
            for utterance, size in zip(ready, sizes, strict=True)
        ]
        chosen = self._policy.batch(rated, self._pace) if rated else []
        batch = [(ready[index], turns[index]) for index in chosen]
        if batch and rated[chosen[0]][0].presses:
            return self._synthesis(batch)
        starting = self._next_to_prefill()
        if starting is not None:
            return self._prefill(starting)
        if self.live:
            return self._decode()
        return self._synthesis(batch) if batch else None

    def _audio_ready(self, job: Job) -> Utterance | None:
        """The utterance of this job that has enough tokens for its next audio, if the reader keeps up."""
        if job.speaking >= len(job.utterances) or self._paused(job):
            return None
        utterance = job.utterances[job.speaking]
        ready = utterance.decoded or (job.request.stream and self._has_hop(utterance))
        if not ready or not self._has_room(utterance):
            return None
        utterance.ready_at = min(utterance.ready_at, time.monotonic())
        return utterance

    def _next_to_prefill(self) -> Utterance | None:
        if len(self.live) >= self.settings.max_live:
            return None
        waiting = [
            utterance
            for job in self.jobs
            if job.decoding < len(job.utterances) and not self._paused(job)
            for utterance in [job.utterances[job.decoding]]
            if utterance.slot is None and not utterance.decoded
        ]
        patience = self.settings.patience_seconds
        first = min(waiting, key=lambda one: start_order(one, patience), default=None)
        return first if first is not None and self._has_room(first) else None

    def _has_room(self, utterance: Utterance) -> bool:
        """Whether it may begin; then the memory it may come to is its own until it has spoken."""
        if utterance.reserved is None and self._memory.reserve(utterance.needs):
            utterance.reserved = utterance.needs
        return utterance.reserved is not None

    def _paused(self, job: Job) -> bool:
        return job.seconds_unread > self.settings.max_unread_seconds

    # -- steps -----------------------------------------------------------------------------------------------------

    def _prefill(self, utterance: Utterance) -> Step:
        def compute() -> int:
            lm = self.model.lm
            slot = self._cache.add()
            try:
                lm_input = lm.build_input(utterance.text_ids, utterance.job.lm_prompt_tokens)
                logp = lm.extend(self._cache, slot, lm_input).cpu()  # sampling draws from CPU generators
                (token,) = self._sample([utterance], logp[None])
                if isinstance(token, Exception):
                    raise token
                return token
            except Exception:
                self._cache.remove(slot)
                raise

        def apply(token: int) -> None:
            utterance.slot = len(self.live)
            self.live.append(utterance)
            self._accept(utterance, token)

        return Step(compute, apply, utterance.job)  # type: ignore[arg-type]

    def _decode(self) -> Step:
        utterances = list(self.live)

        def compute() -> list[int | Exception]:
            last = torch.tensor([utterance.history[-1] for utterance in utterances])
            logp = self._graphs.decode(last) if self._graphs else self.model.lm.decode(self._cache, last)
            return self._sample(utterances, logp.cpu())

        def apply(tokens: list[int | Exception]) -> None:
            self.steps += 1
            for utterance, token in zip(utterances, tokens, strict=True):
                if isinstance(token, Exception):
                    self._fail(utterance.job, token)
                else:
                    self._accept(utterance, token)

        # A decode step that fails as a whole (out of memory) ends the request that joined last.
        newest = max(utterances, key=lambda utterance: utterance.job.submitted_at)
        return Step(compute, apply, newest.job)  # type: ignore[arg-type]

    def _synthesis(self, batch: list[tuple[Utterance, Turn]]) -> Step:
        token2wav = self.model.token2wav
        turns = [turn for _, turn in batch]
        frames = sum(token2wav.frames(turn) for turn in turns)

        def compute() -> tuple[list[Audio | Exception], float]:
            began = time.monotonic()
            audio = token2wav.synthesize(turns)
            return audio, time.monotonic() - began

        def apply(result: tuple[list[Audio | Exception], float]) -> None:
            audio, seconds = result
            self._pace.took(frames, seconds)
            gauges.SYNTHESIS_BATCH.observe(len(turns))
            for (utterance, turn), one in zip(batch, audio, strict=True):
                if isinstance(one, Exception):
                    self._fail(utterance.job, one)
                    continue
                try:
                    self._spoken(utterance, turn, one)
                except Exception as error:  # its neighbours have their audio
                    self._fail(utterance.job, error)

        return Step(compute, apply, batch[0][0].job)  # type: ignore[arg-type]

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
        job.send_audio(audio.samples)
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
        below = ids_below_min_length(self.model.lm, upstream_compat=self.settings.upstream_compat)
        draws = [
            Draw(
                one.history,
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
        if token in self.model.lm.stop_ids:
            utterance.decoded = True
        else:
            utterance.accept(token)
        if utterance.decoded:
            self._leave(utterance)
            utterance.job.decoding += 1
            utterance.job.decoded_at = time.monotonic()
            if utterance.truncated:
                logger.warning("an utterance reached its limit of %d tokens", utterance.max_tokens)

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

    def _drop(self, job: Job) -> None:
        for utterance in job.utterances:
            self._leave(utterance)
            self._release(utterance)
            utterance.state = replace(utterance.state, prefix=None, vocoder=None, seam=None)  # all that is large
        if job in self.jobs:
            self.jobs.remove(job)

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, FloatingPointError):
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
        positions = len(utterance.text_ids) + len(utterance.job.lm_prompt_tokens) + longest
        flow = self.model.token2wav.stream_bytes(prompt, longest) if utterance.job.request.stream else 0
        return flow + (0 if utterance.decoded else positions * _position_bytes(self.model.lm, self._cache))


def _longest(utterance: Utterance) -> int:
    """Speech tokens that an utterance hardly ever exceeds, or has already."""
    return max(min(utterance.max_tokens, _EXPECTED_RATIO * utterance.text_tokens), len(utterance.tokens))


def _position_bytes(lm: SpeechLM, cache: KVCache) -> int:
    """Of one position of a sequence in the key-value cache."""
    config = lm.backbone.config
    return 2 * config.layers * config.kv_heads * config.head_dim * cache.keys[0].element_size()
