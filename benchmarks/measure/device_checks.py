"""What a device computes, beside what the CPU computes in float32: the networks, their graphs, the engine's overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure.speakers import fixed_request, voice
from models.config import load_config
from models.cosyvoice import CosyVoice
from models.decode_graphs import DecodeGraphs
from models.flow import Flow, Piece, Prefix
from models.precision import preferred_decode_dtype, preferred_dtype
from models.sampling import Draw, ras_sample_batch
from models.speech_lm import SpeechLM
from runners.frames import FrameKind
from runners.request import SpeechRequest
from runners.scheduler import Scheduler
from runners.sequence import Sampler
from runners.settings import BATCH_SECONDS, EngineSettings

WINDOW_SECONDS = 20
_SEQUENCES, _STEPS = 3, 8
_HOPS = (25, 50, 75)  # tokens of a stream at the ends of its hops

# Of float32 on two devices, as a share of the largest value: sums in another order, over all layers.
NEAR = 1e-3
# Mean of the waveform: the phase of the harmonics adds up what the mel differs by.
WAVE = 1e-3
# Of bfloat16's eight bits, over all layers.
ROUNDED = 0.1


@dataclass(frozen=True)
class Check:
    """`error`: how far apart the two are that shall be alike."""

    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance  # not where it is not a number


class Checks:
    """Of the model in `folder` on `device`. Each loads what it needs when it is first needed."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder, self._device = folder, device

    def named(self) -> Mapping[str, Callable[[], Check]]:
        """Those that this device can be put to; graphs need CUDA."""
        checks = {
            "decode, float32, to the CPU": self.decode,
            "flow, float32, to the CPU": self.flow,
            "audio, float32, to the CPU": self.audio,
            "flow, usual precision, to float32": self.rounded,
            "engine with overlap, to without": self.overlap,
        }
        if self._device.type == "cuda":
            checks["decode by graphs, to without"] = self.decode_graphs
            checks["flow by graphs, to without"] = self.flow_graphs
        return checks

    @cached_property
    def _exact(self) -> CosyVoice:
        return CosyVoice.load(self._folder, window_seconds=WINDOW_SECONDS)

    @cached_property
    def _near(self) -> CosyVoice:
        return CosyVoice.load(self._folder, device=self._device, window_seconds=WINDOW_SECONDS)

    @cached_property
    def _said(self) -> np.ndarray:
        return engine_audio(self._near, EngineSettings(batch_seconds=BATCH_SECONDS))

    def decode(self) -> Check:
        return _alike(log_probabilities(self._near.lm), log_probabilities(self._exact.lm), NEAR)

    def flow(self) -> Check:
        return _alike(streamed_mels(self._near.token2wav.flow), streamed_mels(self._exact.token2wav.flow), NEAR)

    def audio(self) -> Check:
        return Check(_distance(self._said, engine_audio(self._exact, EngineSettings())), WAVE)

    def rounded(self) -> Check:
        model = load_usual(self._folder, self._device)
        return _alike(streamed_mels(model.token2wav.flow), streamed_mels(self._near.token2wav.flow), ROUNDED)

    def overlap(self) -> Check:
        return Check(
            _distance(engine_audio(self._near, EngineSettings(batch_seconds=BATCH_SECONDS, overlap=True)), self._said),
            WAVE,
        )

    def decode_graphs(self) -> Check:
        lm = self._near.lm
        return _alike(log_probabilities(lm, graphs=True), log_probabilities(lm), NEAR)

    def flow_graphs(self) -> Check:
        graphed = CosyVoice.load(self._folder, device=self._device).token2wav.flow
        graphed.use_graphs()
        return _alike(streamed_mels(graphed), streamed_mels(self._near.token2wav.flow), NEAR)


def load_usual(folder: Path, device: torch.device) -> CosyVoice:
    """In the precisions that the service takes on this device."""
    config = load_config(folder)
    width = config.llm["llm_input_size"]
    lm, flow = preferred_decode_dtype(width, device), preferred_dtype(width, device)
    return CosyVoice.load(config, device=device, lm_dtype=lm, flow_dtype=flow, window_seconds=WINDOW_SECONDS)


def endless(model: CosyVoice) -> Sampler:
    """Draws no stop token: random weights would stop anywhere."""

    def sampler(logp: Tensor, draws: Sequence[Draw]) -> list[int | Exception]:
        spoken = logp.clone()
        spoken[:, model.lm.stop_ids.start : model.lm.stop_ids.stop] = -torch.inf
        return ras_sample_batch(spoken, draws, model.config.sampling)

    return sampler


@torch.inference_mode()
def log_probabilities(lm: SpeechLM, *, graphs: bool = False) -> Tensor:
    """`[steps, sequences, vocab]` of a few steps with given tokens."""
    chance = torch.Generator().manual_seed(0)
    cache = lm.new_cache()
    for count in range(_SEQUENCES):
        lm.extend(cache, cache.add(), lm.build_input(list(range(5 + 3 * count))))
    decode = DecodeGraphs(lm, cache).decode if graphs else partial(lm.decode, cache)
    given = torch.randint(lm.speech_token_size, (_STEPS, _SEQUENCES), generator=chance)
    return torch.stack([decode(tokens).float().cpu() for tokens in given])


def streamed_mels(flow: Flow) -> Tensor:
    """`[mels, frames]` of two streams, hop by hop in one batch, one after the other."""
    chance = torch.Generator().manual_seed(0)
    tokens = torch.randint(flow.input_embedding.num_embeddings, (2, _HOPS[-1] + flow.lookahead), generator=chance)
    speakers = torch.randn(2, flow.spk_embed_affine_layer.in_features, generator=chance)
    prefixes, start, mels = [Prefix(), Prefix()], 0, []
    for stop in _HOPS:
        ahead, cond = slice(stop, stop + flow.lookahead), torch.zeros(0, flow.decoder.mels)
        pieces = [
            Piece(row[start:stop], row[ahead], cond, speaker, prefix)
            for row, speaker, prefix in zip(tokens, speakers, prefixes, strict=True)
        ]
        made = flow.inference(pieces)
        mels += [mel.cpu() for mel, _ in made]
        prefixes, start = [prefix for _, prefix in made], stop
    return torch.cat(mels, dim=1)


def engine_audio(model: CosyVoice, settings: EngineSettings) -> np.ndarray:
    """What the engine says to two streams of given tokens, while others decode."""
    return asyncio.run(_engine_audio(model, settings))


async def _engine_audio(model: CosyVoice, settings: EngineSettings) -> np.ndarray:
    count = _HOPS[-1]
    given = [
        SpeechRequest(source_tokens=tuple(range(first, first + count)), conditioning=voice(model), seed=first)
        for first in (0, 1000)
    ]
    others = [fixed_request(model, 3 * model.lm.max_ratio, seed) for seed in range(2)]
    scheduler = Scheduler(model, settings, endless(model))
    scheduler.start()
    try:
        heard = await asyncio.gather(*(_hear(scheduler, request) for request in (*given, *others)))
    finally:
        await scheduler.close()
    return np.concatenate(heard[: len(given)])


async def _hear(scheduler: Scheduler, request: SpeechRequest) -> np.ndarray:
    blocks = [np.zeros(0, np.float32)]
    async for frame in (await scheduler.submit(request)).frames():
        if frame.kind is FrameKind.ERROR:
            raise RuntimeError(frame.json()["message"])
        if frame.kind is FrameKind.AUDIO:
            blocks.append(np.frombuffer(frame.payload, np.float32))
    return np.concatenate(blocks)


def _distance(ours: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(ours - expected).mean())


def _alike(ours: Tensor, expected: Tensor, tolerance: float) -> Check:
    """By the greatest difference, as a share of the greatest value."""
    return Check(float((ours - expected).abs().max() / expected.abs().max()), tolerance)
