"""Mode table: what of a request enters the language model, and what the flow.

The five ways CosyVoice speaks (preset, zero-shot, cross-lingual, instruct, voice conversion) differ only in which
prompt text, prompt speech tokens, prompt mel and x-vector reach which network (CosyVoice 2, Du et al. 2024; the frame
of CosyVoice 3 texts: Fun-CosyVoice3's model card).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.conditioning import Conditioning
from models.config import ModelConfig
from models.cosyvoice import CosyVoice
from models.token2wav import VoicePrompt
from models.tokenizer import END_OF_PROMPT
from runners.request import RequestError, SpeechRequest, VoiceInfo

# CosyVoice 3 was trained with a system sentence before every prompt text.
SYSTEM_TEXT = "You are a helpful assistant."
MAX_PROMPT_SECONDS = 30  # the speech tokenizer was trained on no longer recordings


@dataclass(frozen=True)
class SegmentPlan:
    """`text_ids` enter the language model (prompt text first; nothing else where the text is still to come); `counted`
    of them bound the length of the speech."""

    text_ids: tuple[int, ...]
    counted: int
    speech_tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    segments: tuple[SegmentPlan, ...]
    lm_prompt_tokens: Sequence[int]
    prompt: VoicePrompt


def resolve(request: SpeechRequest, model: CosyVoice, *, upstream_compat: bool = False) -> Plan:
    """Raises RequestError: `voice_not_found` (404), `voice_required`, `unsupported_parameter`, `input_too_long`,
    `ref_audio_too_long` (400)."""
    plan = _plan(request, model, upstream_compat)
    if len(plan.prompt.tokens) > MAX_PROMPT_SECONDS * model.config.token_frame_rate:
        raise RequestError("ref_audio_too_long", f"The voice's recording is longer than {MAX_PROMPT_SECONDS} s.")
    _check_voice(plan, model)
    room = model.token2wav.room(plan.prompt)
    for segment in plan.segments:
        least = max(len(segment.speech_tokens), model.lm.length_limits(segment.counted)[0])
        if least > room:
            raise RequestError("input_too_long", f"{least} speech tokens in one piece; at most {room} fit.")
    return plan


def _check_voice(plan: Plan, model: CosyVoice) -> None:
    """What the networks cannot look up must not reach them: on a GPU it would end every request."""
    prompt, config, vocab = plan.prompt, model.config, model.token2wav.flow.input_embedding.num_embeddings
    ids = [*prompt.tokens.tolist(), *(token for segment in plan.segments for token in segment.speech_tokens)]
    shapes = (tuple(prompt.mel.shape[1:]), tuple(prompt.embedding.shape))
    if shapes != ((config.mel.num_mels,), (config.spk_embed_dim,)) or any(not 0 <= token < vocab for token in ids):
        raise RequestError("invalid_value", "The voice or the speech tokens are not of this model.")


def _plan(request: SpeechRequest, model: CosyVoice, upstream_compat: bool) -> Plan:
    voice = _conditioning(request, model)
    encode = model.tokenizer.encode
    if request.source_tokens:
        _need_reference(voice, "voice conversion")
        return Plan((SegmentPlan((), 0, request.source_tokens),), (), model.token2wav.prompt(voice))
    system = SYSTEM_TEXT if model.config.version == 3 else ""
    prompt_ids: Sequence[int]
    lm_tokens: Sequence[int] = ()
    if request.instructions is not None:
        if request.prompt_text is not None:
            raise RequestError("invalid_value", "instructions take no transcript of the reference: leave ref_text out.")
        if not model.config.folder.instructions:
            raise RequestError("unsupported_parameter", "This model does not follow instructions.")
        _need_reference(voice, "instructions")
        prompt_ids = encode(f"{system} {request.instructions}".strip() + END_OF_PROMPT)
    elif not request.cross_lingual and (request.prompt_text is not None or voice.prompt_text_ids):
        prompt_ids = _transcript(request, voice, model, system)
        lm_tokens = voice.prompt_tokens.tolist()
    else:
        prompt_ids = encode(system + END_OF_PROMPT) if system else []
    if request.incremental:
        _check_incremental(request, model)
        return Plan((SegmentPlan(tuple(prompt_ids), 0),), lm_tokens, model.token2wav.prompt(voice))
    # Upstream puts the system sentence of these modes into the text itself, where it counts for the length limits.
    counts_prompt = upstream_compat and not lm_tokens and request.instructions is None
    segments = []
    for text in request.segments:
        ids = tuple(encode(text))
        segments.append(SegmentPlan((*prompt_ids, *ids), len(ids) + (len(prompt_ids) if counts_prompt else 0)))
    return Plan(tuple(segments), lm_tokens, model.token2wav.prompt(voice))


def _check_incremental(request: SpeechRequest, model: CosyVoice) -> None:
    if not model.config.folder.bistream:
        raise RequestError("unsupported_parameter", "This model does not speak while its text arrives.")
    if request.instructions is not None and model.config.version == 2:
        message = "CosyVoice 2 follows instructions only where the whole text is known."
        raise RequestError("unsupported_parameter", message)


def _transcript(request: SpeechRequest, voice: Conditioning, model: CosyVoice, system: str) -> Sequence[int]:
    ids: Sequence[int]
    ids = model.tokenizer.encode(request.prompt_text) if request.prompt_text is not None else voice.prompt_text_ids
    if system and model.tokenizer.end_of_prompt_id not in ids:
        ids = [*model.tokenizer.encode(system + END_OF_PROMPT), *ids]
    return ids


def _conditioning(request: SpeechRequest, model: CosyVoice) -> Conditioning:
    if request.conditioning is not None:
        return request.conditioning
    if request.voice is None:
        raise RequestError("voice_required", "This model has no default voice: give voice or ref_audio.")
    voice = model.presets.get(request.voice)
    if voice is None:
        known = ", ".join(sorted(model.presets)) or "none"
        raise RequestError("voice_not_found", f"No voice {request.voice!r}. Known voices: {known}.", 404)
    return voice


def _need_reference(voice: Conditioning, what: str) -> None:
    if not len(voice.prompt_tokens):
        raise RequestError("unsupported_parameter", f"This voice has no reference recording, which {what} needs.")


def voices_of(model: CosyVoice) -> tuple[VoiceInfo, ...]:
    """The presets of a loaded model and the modes each can be used in."""
    infos = []
    for name, voice in sorted(model.presets.items()):
        modes = ["zero_shot", "cross_lingual"] if voice.prompt_text_ids else ["preset"]
        if len(voice.prompt_tokens) and model.config.folder.instructions:
            modes.append("instruct")
        infos.append(VoiceInfo(name, tuple(modes)))
    return tuple(infos)


def silent_voice(config: ModelConfig) -> Conditioning:
    """A voice made of nothing: enough to warm up a model that ships without presets."""
    return Conditioning(
        embedding=np.zeros(config.spk_embed_dim, np.float32),
        prompt_tokens=np.zeros(0, np.int32),
        prompt_mel=np.zeros((0, config.mel.num_mels), np.float32),
    )
