"""The job of a request: an utterance for each segment of its plan, with the limits of the model."""

from __future__ import annotations

import torch

from models.bistream import DEFAULT_MIX, Bistream
from models.cosyvoice import CosyVoice
from models.sampling import SilentFilter
from runners.modes import Plan, SegmentPlan
from runners.request import INCREMENTAL_TOKENS, SpeechRequest
from runners.sequence import Job, Utterance, sampling_config

_EXPECTED_RATIO = 10  # speech tokens per text token; twice as many are possible, some six to eight are usual


def new_job(request: SpeechRequest, plan: Plan, model: CosyVoice, *, upstream_compat: bool) -> Job:
    """Of utterances that have begun nothing yet."""
    job = Job(request, plan, model.config.sample_rate)
    lm, config = model.lm, model.config
    sampling = sampling_config(request.sampling, config.sampling)
    for index, segment in enumerate(plan.segments):
        min_tokens, max_tokens = lm.length_limits(INCREMENTAL_TOKENS if request.incremental else segment.counted)
        utterance = job.add_utterance(
            text_ids=segment.text_ids,
            text_tokens=segment.counted,
            min_tokens=0 if request.incremental else min_tokens,  # which is not known until the text has ended
            max_tokens=min(
                max_tokens,
                model.token2wav.room(job.prompt),
                request.sampling.max_new_tokens or max_tokens,
            ),
            sampling=sampling,
            silent_filter=SilentFilter.of_version(config.version),
            silence=frozenset(config.folder.silence_tokens if index == 0 else ()),
            silence_kept=config.folder.leading_silence_kept,
            bistream=_bistream(segment, plan, model, upstream_compat) if request.incremental else None,
        )
        if segment.speech_tokens:
            utterance.tokens = list(segment.speech_tokens)
            utterance.decoded = True
    return job


def expected_tokens(utterance: Utterance) -> int:
    """Speech tokens that an utterance hardly ever exceeds, or has already."""
    text = utterance.text_tokens if utterance.bistream is None else INCREMENTAL_TOKENS
    return max(min(utterance.max_tokens, _EXPECTED_RATIO * text), len(utterance.tokens))


@torch.inference_mode()
def _bistream(segment: SegmentPlan, plan: Plan, model: CosyVoice, upstream_compat: bool) -> Bistream:
    return Bistream(
        model.lm,
        segment.text_ids,
        plan.lm_prompt_tokens,
        end_of_prompt_id=model.tokenizer.end_of_prompt_id,
        mix=model.config.llm.get("mix_ratio") or DEFAULT_MIX,
        upstream_compat=upstream_compat,
    )
