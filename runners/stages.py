"""What each stage of the pipeline did, step by step: for the metrics, and for whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runners import gauges

ENCODE_REFERENCE, PREFILL, DECODE, FLOW, VOCODER = "encode_reference", "prefill", "decode", "flow", "vocoder"
ENCODE_AUDIO = "encode_audio"
STAGES = (ENCODE_REFERENCE, PREFILL, DECODE, FLOW, VOCODER, ENCODE_AUDIO)

OnStage = Callable[[str, float, float, Sequence[Any]], None]
"""Called with the stage, when the step began and ended (monotonic seconds), and whom it worked for together."""


class StageRecorder:
    """Takes the steps of one process; calls each `listener` in the thread that records."""

    def __init__(self, *listeners: OnStage) -> None:
        self.listeners = list(listeners)
        self._metrics = {stage: (gauges.STAGE_BATCH.labels(stage), gauges.STAGE_STEP.labels(stage)) for stage in STAGES}

    def record(self, stage: str, began: float, ended: float, jobs: Sequence[Any]) -> None:
        """One step of `stage`, from `began` to `ended` (monotonic seconds), for `jobs`: those of the engine, or the
        recordings of the prompt encoder."""
        batch, step = self._metrics[stage]
        batch.observe(len(jobs))
        step.observe(ended - began)
        for listener in self.listeners:
            listener(stage, began, ended, jobs)
