"""What a reduced precision of the language model changes: its log-probs against float32, token by token."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.config import EMBEDDED, SamplingConfig, load_config
from models.sampling import Draw, ids_below_min_length, ras_sample_batch
from models.speech_lm import SpeechLM
from models.tokenizer import Tokenizer
from text.frontend import TextFrontend

SENTENCES = Path(__file__).resolve().parent.parent / "tests" / "data" / "everyday.txt"


@dataclass(frozen=True)
class Fidelity:
    """Changes along `tokens` that the model drew in float32, in nats.

    `drift`, `worst`: mean and largest change of the log-prob of the token drawn; `divergence`: mean Kullback-Leibler
    divergence from float32; `greedy`, `drawn`: how often the most probable id, and the id that the same random numbers
    draw after the same history, is the same.
    """

    model: str
    precision: str
    tokens: int
    drift: float
    worst: float
    divergence: float
    greedy: float
    drawn: float


def embedded_texts(count: int) -> list[list[int]]:
    """The first everyday sentences, each as the embedded voice's token ids."""
    config = load_config(EMBEDDED)
    tokenizer = Tokenizer.load(config.root, config.version)
    frontend = TextFrontend.for_model(config, tokenizer)
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()[:count]
    return [tokenizer.encode(segment.tokens_text) for sentence in sentences for segment in frontend.segments(sentence)]


def measure_fidelity(
    folder: Path, name: str, texts: Sequence[Sequence[int]], precisions: Mapping[str, torch.dtype], *, steps: int
) -> tuple[Fidelity, ...]:
    """Each of `precisions` against float32, along what float32 draws for `texts`, at most `steps` tokens each."""
    config = load_config(folder)
    lms = [SpeechLM.load(config), *(SpeechLM.load(config, dtype=dtype) for dtype in precisions.values())]
    changes = [change for seed, text in enumerate(texts) for change in _follow(lms, text, config.sampling, steps, seed)]
    return tuple(
        _summary(name, precision, [change[index] for change in changes]) for index, precision in enumerate(precisions)
    )


@dataclass(frozen=True)
class _Change:
    """At one token."""

    drift: float
    divergence: float
    greedy: bool
    drawn: bool


def _follow(
    lms: Sequence[SpeechLM], text: Sequence[int], sampling: SamplingConfig, steps: int, seed: int
) -> list[list[_Change]]:
    """The first model speaks `text`, the others hear the same tokens; per token, the change of each of the others."""
    caches = [lm.new_cache(1) for lm in lms]
    rows = [lm.extend(cache, cache.add(), lm.build_input(text)) for lm, cache in zip(lms, caches, strict=True)]
    generators = [torch.Generator().manual_seed(seed) for _ in lms]
    below_minimum, (minimum, maximum) = ids_below_min_length(lms[0]), lms[0].length_limits(len(text))
    history: list[int] = []
    changes = []
    while len(history) < min(steps, maximum):
        forbidden = below_minimum if len(history) < minimum else range(0)
        state = generators[0].get_state()
        for generator in generators[1:]:
            generator.set_state(state)
        logp = torch.stack(rows)
        draws = [Draw(history, generator, forbidden) for generator in generators]
        drawn = ras_sample_batch(logp, draws, sampling)
        token = drawn[0]
        if isinstance(token, Exception):
            raise token
        changes.append([_change(logp[0], row, token, own) for row, own in zip(logp[1:], drawn[1:], strict=True)])
        if token in lms[0].stop_ids:
            break
        history.append(token)
        rows = [lm.decode(cache, torch.tensor([token]))[0] for lm, cache in zip(lms, caches, strict=True)]
    return changes


def _change(reference: Tensor, logp: Tensor, token: int, own: int | Exception) -> _Change:
    return _Change(
        drift=abs(float(logp[token] - reference[token])),
        divergence=float((reference.exp() * (reference - logp)).sum()),
        greedy=int(logp.argmax()) == int(reference.argmax()),
        drawn=own == token,
    )


def _summary(model: str, precision: str, changes: Sequence[_Change]) -> Fidelity:
    drifts = [change.drift for change in changes]
    return Fidelity(
        model,
        precision,
        tokens=len(changes),
        drift=statistics.fmean(drifts),
        worst=max(drifts),
        divergence=statistics.fmean(change.divergence for change in changes),
        greedy=statistics.fmean(change.greedy for change in changes),
        drawn=statistics.fmean(change.drawn for change in changes),
    )
