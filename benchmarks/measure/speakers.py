"""Who speaks and what: a voice of 3 seconds, requests of a known length, everyday texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from torch import Tensor

from models.conditioning import Conditioning
from models.cosyvoice import CosyVoice
from runners.request import SpeechRequest
from text.frontend import TextFrontend

PROMPT_SECONDS = 3
PROMPT_TEXT = 45  # tokens of the prompt's transcript
_SENTENCE = "The train to the coast leaves from platform nine in twenty minutes, so there is time for a coffee."


def voice(model: CosyVoice, seconds: int = PROMPT_SECONDS) -> Conditioning:
    """Random: what a voice says costs nothing, how long it is does."""
    config, chance = model.config, np.random.default_rng(0)
    tokens = seconds * config.token_frame_rate
    mels = config.mel.num_mels
    return Conditioning(
        embedding=chance.standard_normal(config.spk_embed_dim, np.float32),
        prompt_tokens=chance.integers(0, model.lm.speech_token_size, tokens, np.int32),
        prompt_mel=2 * chance.standard_normal((config.token_mel_ratio * tokens, mels), np.float32) - 6,
        prompt_text_ids=tuple(chance.integers(0, min(400, model.lm.text_vocab), PROMPT_TEXT).tolist()),
    )


def fixed_request(model: CosyVoice, tokens: int, seed: int) -> SpeechRequest:
    """Streamed speech of `tokens` at most, and if `endless`, so many: a multiple of the most per token of text."""
    count = tokens // model.lm.max_ratio
    text = spoken_texts(model, (_SENTENCE,))[0]
    for end in range(1, len(text) + 1):
        if len(model.tokenizer.encode(text[:end])) == count:
            return SpeechRequest(segments=(text[:end],), conditioning=voice(model), seed=seed)
    raise ValueError(f"no text of {count} tokens for {tokens} tokens of speech")


def spoken_texts(model: CosyVoice, texts: Sequence[str]) -> list[str]:
    """The first utterance of each text, as the model's tokenizer gets it."""
    frontend = TextFrontend.for_model(model.config, model.tokenizer)
    return [frontend.segments(text)[0].tokens_text for text in texts]


def text_requests(model: CosyVoice, texts: Sequence[str]) -> list[SpeechRequest]:
    """Each text whole, in the model's own voice if it has one."""
    frontend = TextFrontend.for_model(model.config, model.tokenizer)
    name = next(iter(sorted(model.presets)), None)
    conditioning = None if name else voice(model)
    return [
        SpeechRequest(
            segments=tuple(segment.tokens_text for segment in frontend.segments(text)),
            voice=name,
            conditioning=conditioning,
            seed=number,
        )
        for number, text in enumerate(texts)
    ]


@contextmanager
def endless(model: CosyVoice) -> Iterator[None]:
    """Until the end, no utterance draws a stop token: random weights would stop anywhere."""

    def without_stops(function: Any) -> Any:
        def call(*arguments: Any) -> Tensor:
            logp = function(*arguments)
            logp[..., model.lm.stop_ids.start : model.lm.stop_ids.stop] = -float("inf")
            return logp

        return call

    with ExitStack() as patches:
        for method in ("extend", "decode"):
            patches.enter_context(patch.object(model.lm, method, without_stops(getattr(model.lm, method))))
        yield
