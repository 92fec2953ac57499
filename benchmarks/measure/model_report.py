"""Everything that is measured of one model."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.loading.levels import Closed, Open
from benchmarks.loading.texts import TEXTS
from benchmarks.measure.comparison import Comparison, compare
from benchmarks.measure.engine_load import LoadFigures, measure_load
from benchmarks.measure.machine import peak_memory_gb
from benchmarks.measure.speakers import text_requests
from benchmarks.measure.streaming import HOPS, WINDOWS, Growth, StreamCompute, growth, stream_compute
from models.config import load_config
from models.cosyvoice import CosyVoice
from models.precision import preferred_decode_dtype, preferred_dtype
from runners.settings import EngineSettings, engine_settings

DEFAULT_WINDOW = 20  # seconds
SHARES = (0.5, 0.8)  # of what a closed loop reaches: the rates of the open loop


@dataclass(frozen=True)
class Effort:
    """How much is measured. `streams` at once of `tokens` each beside upstream; `seconds` of the stream whose compute
    is counted, `rounds` times; `hops`: whose cost is; `clients` of the closed loops, with `requests` each, which speak
    the first `texts` of the everyday texts."""

    threads: int
    streams: int = 8
    tokens: int = 100
    seconds: int = 10
    rounds: int = 1
    hops: tuple[int, ...] = HOPS
    clients: tuple[int, ...] = ()
    requests: int = 4
    texts: int = len(TEXTS)


@dataclass(frozen=True)
class ModelReport:
    """`peak_gb`: most memory that the process had, all precisions and upstream's structure loaded."""

    name: str
    comparison: Comparison
    compute: StreamCompute
    growths: tuple[Growth, ...]
    loads: tuple[LoadFigures, ...]
    peak_gb: float


def measure_model(name: str, folder: Path, effort: Effort) -> ModelReport:
    """In a process of its own: it keeps what it has loaded."""
    torch.set_num_threads(effort.threads)
    models = _load(folder)
    # Upstream's structure refuses nobody either.
    settings = {
        precision: replace(engine_settings(model), max_ttfa_seconds=None) for precision, model in models.items()
    }
    precision, model = list(models.items())[-1]
    loads = _loads(name, model, settings[precision], effort) if effort.clients else ()
    _tell(name, f"{effort.streams} streams beside upstream's structure")
    comparison = compare(models, settings, effort.streams, effort.tokens)
    _tell(name, f"compute of a stream, {precision}")
    compute = stream_compute(model, precision, effort.seconds, effort.rounds)
    growths = []
    for window in WINDOWS:
        _tell(name, "late hops, " + ("no window" if window is None else f"{window} s window"))
        room = settings[precision].memory_bytes
        growths.append(growth(model, precision, window, room, effort.hops, repeats=2 * effort.rounds))
    return ModelReport(name, comparison, compute, tuple(growths), loads, peak_memory_gb())


def _load(folder: Path) -> dict[str, CosyVoice]:
    """In float32, and in what is best for a network of this size here, which comes last."""
    config = load_config(folder)
    exact = CosyVoice.load(config, window_seconds=DEFAULT_WINDOW)
    models = {"float32": exact}
    width = exact.lm.backbone.config.hidden
    lm, flow = preferred_decode_dtype(width, "cpu"), preferred_dtype(width, "cpu")
    if (lm, flow) != (torch.float32, torch.float32):
        name = " and ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in (lm, flow)))
        models[name] = CosyVoice.load(config, lm_dtype=lm, flow_dtype=flow, window_seconds=DEFAULT_WINDOW)
    return models


def _loads(name: str, model: CosyVoice, settings: EngineSettings, effort: Effort) -> tuple[LoadFigures, ...]:
    requests = text_requests(model, TEXTS[: effort.texts])
    loads = []
    for clients in effort.clients:
        _tell(name, f"closed loop, {clients} clients")
        loads.append(measure_load(model, settings, requests, Closed(clients), max(6, clients * effort.requests)))
    most = max(loads, key=lambda load: load.figures.audio_s_per_s).figures
    assert most.audio_s is not None
    for share in SHARES:
        rate = share * most.audio_s_per_s / most.audio_s.mean
        _tell(name, f"open loop, {rate:.2f} requests per second")
        loads.append(measure_load(model, settings, requests, Open(round(rate, 2)), 6 * effort.requests))
    return tuple(loads)


def _tell(name: str, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {name}: {what}", file=sys.stderr, flush=True)
