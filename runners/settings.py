"""Settings of the runners, from the environment, with the defaults that were measured."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from models.config import ModelConfig, load_config
from runners.model_folder import model_folder

if TYPE_CHECKING:
    import torch

    from models.cosyvoice import CosyVoice

Number = TypeVar("Number", int, float)

_WINDOW_SECONDS = 20
_MAX_TTFA_SECONDS = 3.0
BATCH_SECONDS = 0.3  # of synthesis on a GPU
_VOICE_BYTES = 1 << 30  # where the system does not tell how much memory there is


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


def available_cores() -> int:
    """Cores this process may really use: affinity and the cgroup's CPU quota, whichever is smaller, at least 1.

    More threads than that makes every step wait for a thread that has no core to run on.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota_file = Path("/sys/fs/cgroup/cpu.max")
    try:
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return max(1, _integer("COSYSERVE_THREADS", cores))


def load_model(dtype: str | None = None) -> CosyVoice:
    """The model of MODEL_DIR as COSYSERVE_DTYPE, unless `dtype` is given, and COSYSERVE_WINDOW ask for it.

    Raises ModelError.
    """
    import torch

    from models.cosyvoice import CosyVoice

    torch.set_num_threads(available_cores())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # The phase of the vocoder's harmonics adds up over an utterance: ten bits of a product are not enough.
    torch.backends.cudnn.allow_tf32 = False
    config = load_config(model_folder())
    window = os.environ.get("COSYSERVE_WINDOW")
    lm_dtype, flow_dtype = _dtypes(dtype or os.environ.get("COSYSERVE_DTYPE") or "auto", config, device)
    return CosyVoice.load(
        config,
        device=device,
        lm_dtype=lm_dtype,
        flow_dtype=flow_dtype,
        window_seconds=None if window == "none" else _integer("COSYSERVE_WINDOW", _WINDOW_SECONDS),
    )


def engine_settings(model: CosyVoice) -> EngineSettings:
    """COSYSERVE_MAX_LIVE, COSYSERVE_MAX_REQUESTS, COSYSERVE_MAX_TTFA, COSYSERVE_MEMORY_MB, COSYSERVE_CUDA_GRAPHS
    and COSYSERVE_OVERLAP applied; a quarter of the memory is given to the model for the prompts of known voices."""
    from runners.memory import budget_bytes

    default = EngineSettings()
    device = model.token2wav.flow.device
    memory = budget_bytes(device)
    if os.environ.get("COSYSERVE_MEMORY_MB"):
        memory = _integer("COSYSERVE_MEMORY_MB", 1) * 1_000_000
    voices = _VOICE_BYTES if memory is None else memory // 4
    model.token2wav.voices.max_bytes = voices
    return EngineSettings(
        max_live=_integer("COSYSERVE_MAX_LIVE", default.max_live),
        max_requests=_integer("COSYSERVE_MAX_REQUESTS", default.max_requests),
        max_ttfa_seconds=_seconds("COSYSERVE_MAX_TTFA", _MAX_TTFA_SECONDS),
        batch_seconds=BATCH_SECONDS if device.type == "cuda" else default.batch_seconds,
        memory_bytes=None if memory is None else memory - voices,
        cuda_graphs=os.environ.get("COSYSERVE_CUDA_GRAPHS") == "1" and device.type == "cuda",
        overlap=os.environ.get("COSYSERVE_OVERLAP") == "1",
    )


def _dtypes(name: str, config: ModelConfig, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """Of the language model and of the flow: float32, bfloat16, or (auto) what is fastest for a model of this size on
    this device."""
    import torch

    from models.precision import preferred_decode_dtype, preferred_dtype

    if name == "auto":
        width = config.llm["llm_input_size"]
        return preferred_decode_dtype(width, device), preferred_dtype(width, device)
    if name not in ("float32", "bfloat16"):
        raise SystemExit(f"cosyserve: error: COSYSERVE_DTYPE={name!r} is not auto, float32 or bfloat16")
    dtype = getattr(torch, name)
    return dtype, dtype


def _seconds(name: str, default: float) -> float | None:
    """None for `none`."""
    if os.environ.get(name) == "none":
        return None
    return _positive(name, default, float, "a number of seconds above 0, or none")


def _integer(name: str, default: int) -> int:
    return _positive(name, default, int, "a whole number of at least 1")


def _positive(name: str, default: Number, parse: Callable[[str], Number], wanted: str) -> Number:
    value = os.environ.get(name)
    if not value:
        return default
    try:
        number = parse(value)
    except ValueError:
        number = parse("0")
    if not 0 < number < math.inf:
        raise SystemExit(f"cosyserve: error: {name}={value!r} is not {wanted}")
    return number
