"""Choose the next speech tokens: repetition-aware sampling, minimum length, v3's filter of long silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from models.config import SamplingConfig

if TYPE_CHECKING:
    from models.speech_lm import SpeechLM

# Speech tokens of silence and breath in CosyVoice 3's codebook, and how many of them in a row are spoken.
_V3_SILENT_TOKENS = frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323})
_V3_MAX_SILENT_RUN = 5


@dataclass(frozen=True)
class Draw:
    """What a sequence draws its next token with.

    `history`: all ids decoded so far, with those that were not spoken; `generator` None: torch's global one;
    `forbidden`: ids that must not be drawn; `config` None: the batch's; `temperature` divides the log-probabilities.
    """

    history: Sequence[int]
    generator: torch.Generator | None = None
    forbidden: range = range(0)
    config: SamplingConfig | None = None
    temperature: float = 1.0


def ras_sample(
    logp: Tensor, history: Sequence[int], config: SamplingConfig, generator: torch.Generator | None = None
) -> int:
    """One draw of repetition-aware sampling (VALL-E 2, Chen et al. 2024; equal to upstream's `ras_sampling`).

    `logp: [V]` log-probabilities on the CPU, forbidden ids at -inf; `history` and `generator` as of `Draw`. Draws from
    the nucleus; if that id was among the last `win_size` ids at least `win_size * tau_r` times, draws again from
    everything but that id. Raises FloatingPointError for log-probabilities that are not finite.
    """
    (token,) = ras_sample_batch(logp[None], [Draw(history, generator)], config)
    if isinstance(token, Exception):
        raise token
    return token


def ras_sample_batch(logp: Tensor, draws: Sequence[Draw], config: SamplingConfig) -> list[int | Exception]:
    """`ras_sample` of every row of `logp: [B, V]`: the ids, or what went wrong with a row, which is its own affair.

    What a row draws depends on that row and its `Draw` alone.
    """
    configs = [draw.config or config for draw in draws]
    if any(draw.forbidden or draw.temperature != 1 for draw in draws):
        logp = logp.clone()
        for row, draw in zip(logp, draws, strict=True):
            row[draw.forbidden.start : draw.forbidden.stop] = -torch.inf
            if draw.temperature != 1:
                row /= draw.temperature
    sound = logp.amax(dim=1).isfinite().tolist()
    values, ids = _most_probable(logp.softmax(dim=1), max(one.top_k for one in configs))
    # Taken while the sum before is below top_p; the sum runs in float32 as upstream's does.
    sums = np.add.accumulate(values.numpy(), axis=1)
    limits = np.array([one.top_p for one in configs], np.float32)
    sizes = 1 + np.count_nonzero(sums[:, :-1] < limits[:, None], axis=1)
    rows = zip(logp, values, ids, sizes.tolist(), sound, draws, configs, strict=True)
    return [
        _draw(row, nucleus[: min(size, one.top_k)], nucleus_ids, draw, one)
        if finite
        else FloatingPointError("log-probabilities are not finite")
        for row, nucleus, nucleus_ids, size, finite, draw, one in rows
    ]


def _draw(logp: Tensor, nucleus: Tensor, ids: Tensor, draw: Draw, config: SamplingConfig) -> int:
    token = int(ids[torch.multinomial(nucleus, 1, generator=draw.generator)])
    repeats = list(draw.history[-config.win_size :]).count(token) if config.win_size > 0 else 0
    if repeats >= config.win_size * config.tau_r:
        rest = logp.clone()
        rest[token] = -torch.inf
        token = int(torch.multinomial(rest.softmax(dim=0), 1, generator=draw.generator))
    return token


def _most_probable(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row, descending, and their ids; equal values in the order of their ids."""
    wanted = min(count + 1, probabilities.shape[1])
    values, ids = probabilities.topk(wanted, dim=1)
    if bool((values[:, 1:] == values[:, :-1]).any()):  # rare; topk leaves the order of equal values open
        values, ids = probabilities.sort(dim=1, descending=True, stable=True)
    return values[:, :count], ids[:, :count]


def mask_ids(logp: Tensor, ids: range) -> Tensor:
    """A copy of `logp: [V]` with the consecutive `ids` at -inf."""
    masked = logp.clone()
    masked[ids.start : ids.stop] = -torch.inf
    return masked


def ids_below_min_length(lm: SpeechLM, *, upstream_compat: bool = False) -> range:
    """The ids that must not be drawn while an utterance is shorter than its minimum length.

    All that would end it. Upstream (`upstream_compat`) forbids only the first special id, which is the
    end-of-speech id of CosyVoice 2, but the start id of CosyVoice 3: there the minimum length has no effect.
    """
    first = lm.speech_token_size
    return range(first, first + 1) if upstream_compat else lm.stop_ids


class SilentFilter:
    """Drops what exceeds a run of silent speech tokens; one per utterance. What it drops stays in history."""

    def __init__(self, silent: frozenset[int], max_run: int) -> None:
        self._silent = silent
        self._max_run = max_run
        self._run = 0

    @classmethod
    def of_version(cls, version: int) -> SilentFilter:
        """The filter of CosyVoice `version`: 2 keeps everything."""
        return cls(_V3_SILENT_TOKENS, _V3_MAX_SILENT_RUN) if version == 3 else cls(frozenset(), 0)

    def keep(self, token: int) -> bool:
        """Whether `token`, the next one decoded, is to be spoken."""
        self._run = self._run + 1 if token in self._silent else 0
        return self._run <= self._max_run
