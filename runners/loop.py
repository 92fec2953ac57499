"""Runs steps: on one thread one after the other, and, where there is a second thread, one aside."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from models.device import own_stream
from runners.gauges import QUEUE_WAIT, AudioRate
from runners.sequence import Job
from runners.stages import StageRecorder
from runners.step import Step

logger = logging.getLogger("cosyserve.engine")


@dataclass(frozen=True)
class _UnderWay:
    """A step that computes, since `began` (monotonic seconds)."""

    step: Step
    work: asyncio.Future[object]
    began: float


class Loop:
    """`choose` gives the next step, or None: then the loop sleeps until `wake`. `settle` is called on the thread before
    each step that is not aside. `failed`: a job whose step has failed. `left_aside`: a step aside has ended.

    `aside_on`: the device whose second thread, with a stream of its own, takes the steps aside; None: there are none.
    """

    def __init__(
        self,
        choose: Callable[[], Step | None],
        settle: Callable[[], None],
        failed: Callable[[Job, Exception], None],
        left_aside: Callable[[Step], None],
        stages: StageRecorder,
        rate: AudioRate,
        aside_on: torch.device | None = None,
    ) -> None:
        self._choose, self._settle, self._failed, self._left_aside = choose, settle, failed, left_aside
        self._stages, self._rate = stages, rate
        self._device = ThreadPoolExecutor(1, thread_name_prefix="device")
        self._second = self._device
        if aside_on is not None:
            self._second = ThreadPoolExecutor(1, "speech", initializer=own_stream, initargs=(aside_on,))
        self._aside: _UnderWay | None = None
        self._worked_until = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task | None = None

    @property
    def aside(self) -> Step | None:
        """The step that computes beside the others."""
        return None if self._aside is None else self._aside.step

    @property
    def busy(self) -> Sequence[Job]:
        """Those whom it works for."""
        return () if self._aside is None else self._aside.step.jobs

    def start(self, on_death: Callable[[], None]) -> None:
        """Begin to work. `on_death` is called if the loop itself fails."""

        def ended(task: asyncio.Task) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.critical("the engine's loop failed", exc_info=error)
                on_death()

        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(ended)

    async def stop(self) -> None:
        """No step follows. The result of one that still computes is dropped; `shut_down` waits for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def shut_down(self) -> None:
        for thread in (self._device, self._second):
            await asyncio.to_thread(thread.shutdown)

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    async def call_aside(self, function: Callable[[], object]) -> None:
        """In the thread that takes the steps aside."""
        await asyncio.get_running_loop().run_in_executor(self._second, function)

    async def _run(self) -> None:
        while True:
            if self._aside is not None and self._aside.work.done():
                done, self._aside = self._aside, None
                await self._take(done)
                self._left_aside(done.step)
            chosen = self._choose()
            if chosen is None:
                self._wake.clear()
                await self._wake.wait()
            elif chosen.aside:
                self._aside = self._begin(chosen, self._second)
                self._aside.work.add_done_callback(lambda _: self.wake())
            else:
                await self._take(self._begin(chosen, self._device))

    def _begin(self, step: Step, thread: ThreadPoolExecutor) -> _UnderWay:
        now = time.monotonic()
        for job in step.jobs:
            if job.begun_at is None:
                job.begun_at = now
                QUEUE_WAIT.observe(now - job.submitted_at)
        work = asyncio.get_running_loop().run_in_executor(thread, self._compute, step)
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at, also if nobody takes it
        return _UnderWay(step, work, now)

    async def _take(self, done: _UnderWay) -> None:
        """The result of a step. States change here only, while no step of the language model is under way."""
        await asyncio.wait({done.work})
        self._worked(done.began)
        try:
            done.step.apply(done.work.result())
        except Exception as error:  # whatever it is, it ends one request and never the loop
            self._failed(done.step.owner, error)

    def _worked(self, began: float) -> None:
        """Until now, since `began`; at once is once."""
        now = time.monotonic()
        self._rate.worked(now - max(began, self._worked_until))
        self._worked_until = now

    @torch.inference_mode()
    def _compute(self, step: Step) -> object:
        if not step.aside:
            self._settle()
        began = time.monotonic()
        try:
            return step.compute()
        finally:
            if step.stage is not None:
                self._stages.record(step.stage, began, time.monotonic(), step.jobs)
