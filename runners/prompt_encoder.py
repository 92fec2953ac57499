"""PromptEncoder: the BentoML runner that turns reference audio into a voice's conditioning, adaptively batched."""

from __future__ import annotations

import logging
from typing import Any

import bentoml

from models.config import load_config, model_dir
from runners.request import RequestError
from runners.speech_engine import KEEP_SESSION

logger = logging.getLogger("cosyserve.prompt_encoder")


@bentoml.service(
    name="prompt_encoder",
    resources={"gpu": 1},
    workers=1,
    traffic={"timeout": 600},
    runner_connection=KEEP_SESSION,
    logging={"access": {"enabled": False}},
)
class PromptEncoder:
    """Each item of a batch is {"samples": float32 bytes, "sample_rate": int, "tokens_only": bool} and gets its own
    {"conditioning": bytes} or {"speech_tokens": list} or {"error": {...}}: one bad recording fails alone."""

    def __init__(self) -> None:
        from models.prompt_features import PromptModels

        self._models = PromptModels.load(load_config(model_dir()))

    @bentoml.api(batchable=True, max_batch_size=8, max_latency_ms=60_000)
    def encode(self, items: list[Any]) -> list[Any]:
        return [self._encode(item) for item in items]

    def _encode(self, item: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        try:
            samples = np.frombuffer(item["samples"], np.float32)
            if item.get("tokens_only"):
                return {"speech_tokens": self._models.speech_tokens(samples, item["sample_rate"]).tolist()}
            return {"conditioning": self._models.encode(samples, item["sample_rate"]).to_bytes()}
        except Exception:
            logger.exception("a reference could not be encoded")
            error = RequestError("ref_audio_invalid", "This reference audio could not be encoded.")
            return {"error": {"code": error.code, "message": error.message, "status": error.status}}
