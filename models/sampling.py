"""Choose the next speech token: repetition-aware sampling, minimum length, v3's filter of long silence."""

from __future__ import annotations

from collections.abc import Sequence
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


def ras_sample(
    logp: Tensor, history: Sequence[int], config: SamplingConfig, generator: torch.Generator | None = None
) -> int:
    """One draw of repetition-aware sampling (VALL-E 2, Chen et al. 2024; equal to upstream's `ras_sampling`).

    `logp: [V]` log-probabilities on the CPU, forbidden ids at -inf; `history`: all ids decoded so far, with
    those that were not spoken. Draws from the nucleus; if that id was among the last `win_size` ids at least
    `win_size * tau_r` times, draws again from everything but that id. `generator` None: torch's global one.
    """
    probabilities = logp.softmax(dim=0)
    values, ids = _most_probable(probabilities, config.top_k)
    # Taken while the sum before is below top_p; the sum runs in float32 as upstream's does.
    before = np.add.accumulate(values.numpy())[:-1]
    size = 1 + int(np.argmin(np.append(before < np.float32(config.top_p), False)))
    token = int(ids[torch.multinomial(values[:size], 1, generator=generator)])
    repeats = list(history[-config.win_size :]).count(token) if config.win_size > 0 else 0
    if repeats >= config.win_size * config.tau_r:
        rest = logp.clone()
        rest[token] = -torch.inf
        token = int(torch.multinomial(rest.softmax(dim=0), 1, generator=generator))
    return token


def _most_probable(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values, descending, and their ids; equal values in the order of their ids."""
    wanted = min(count + 1, len(probabilities))
    values, ids = probabilities.topk(wanted)
    if bool((values[1:] == values[:-1]).any()):  # rare; topk leaves the order of equal values open
        values, ids = probabilities.sort(descending=True, stable=True)
    return values[:count], ids[:count]


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
