"""PromptEncoder: the BentoML runner that turns reference audio into a voice's conditioning, adaptively batched."""

from __future__ import annotations

import logging
import time
from typing import Any

import bentoml

from models.config import load_config
from models.errors import ModelError
from runners.fatal import die
from runners.model_folder import model_folder
from runners.speech_engine import GPU_SHARE, KEEP_SESSION
from runners.stages import ENCODE_REFERENCE, StageRecorder
from runners.tracing import flush, shared_step
from runners.watch import WATCH_PATH, watched

logger = logging.getLogger("cosyserve.prompt_encoder")


@bentoml.service(
    name="prompt_encoder",
    resources=GPU_SHARE,
    workers=1,
    traffic={"timeout": 60},
    runner_connection=KEEP_SESSION,
    logging={"access": {"enabled": False}},
)
@bentoml.asgi_app(watched, path=WATCH_PATH)
class PromptEncoder:
    """Each item of a batch is {"samples": float32 bytes, "sample_rate": int}, perhaps with a "traceparent", and gets
    its own {"conditioning": bytes} or {"error": {...}}: one bad recording fails alone."""

    def __init__(self) -> None:
        from models.prompt_features import PromptModels

        self._stages = StageRecorder(shared_step)
        try:
            self._models = PromptModels.load(load_config(model_folder()))
        except ModelError as error:
            die(error.message)

    @bentoml.on_shutdown
    def stop(self) -> None:
        flush()

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=60_000)
    def encode(self, items: list[Any]) -> list[Any]:
        began = time.monotonic()
        encoded = [self._encode(item) for item in items]
        self._stages.record(ENCODE_REFERENCE, began, time.monotonic(), items)
        return encoded

    def _encode(self, item: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        try:
            samples = np.frombuffer(item["samples"], np.float32)
            return {"conditioning": self._models.encode(samples, item["sample_rate"]).to_bytes()}
        except ModelError as error:
            if error.code == "model_input_invalid":
                return _failure("ref_audio_invalid", f"This reference audio cannot be used: {error.message}.", 400)
            logger.exception("a reference could not be encoded")
        except Exception:
            logger.exception("a reference could not be encoded")
        return _failure("engine_error", "The prompt encoder failed on this reference audio.", 500)


def _failure(code: str, message: str, status: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status}}
