"""A wish's text as passages of one voice and manner each, and as the parts that the engine is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from api.casting import Role
from api.errors import ApiError
from api.parts import Part
from api.wish import MAX_PITCH, MAX_SPEED, MIN_PITCH, MIN_SPEED, PLAIN_VOLUME, SpeechWish, check_range
from runners.request import SpeechRequest
from text.errors import TextError
from text.frontend import Segment, TextFrontend
from text.options import AUTO, TextOptions
from text.pronunciation import Pronunciation
from text.ssml import parse_ssml

_SEEDS = 2**63
# A passage without a word, between others, is a pause at most.
_WORDLESS = ("input_empty", "no_speakable_text")
# What is at fault where it is not the text.
_FIELDS = {
    "unknown_phone": "pronunciation",
    "unsupported_pronunciation": "pronunciation",
    "unsupported_parameter": "text_normalization",
}


@dataclass(frozen=True)
class Manner:
    """How a passage is said: consecutive ones of one manner are one request. `voice` None: the wish's."""

    voice: str | None
    speed: float
    volume: float  # gain
    pitch: float  # ratio


@dataclass(frozen=True)
class Passage:
    """Segments, perhaps none, of one manner, and the pause after them."""

    manner: Manner
    segments: tuple[Segment, ...]
    pause_s: float = 0.0


def read_passages(frontend: TextFrontend, pronunciations: Sequence[Pronunciation], wish: SpeechWish) -> list[Passage]:
    """`pronunciations`: of the dictionaries that the wish names, after its own.

    Raises TextError, and ApiError invalid_value for markup that goes beyond what the speech endpoint accepts.
    """
    own = wish.options
    language = own.language if wish.language == AUTO else wish.language
    options = replace(own, language=language, pronunciations=(*own.pronunciations, *pronunciations))
    manner = Manner(None, wish.speed, wish.volume / PLAIN_VOLUME, wish.pitch)
    if wish.input_type == "text":
        try:
            return [Passage(manner, tuple(frontend.segments(wish.text, options)))]
        except TextError as error:
            raise ApiError(400, error.code, error.message, _FIELDS.get(error.code, "input")) from error
    passages = _of_markup(frontend, options, wish.text, manner)
    if not any(passage.segments for passage in passages):
        raise TextError("no_speakable_text", "The input has nothing that can be spoken.")
    return passages


def _of_markup(frontend: TextFrontend, options: TextOptions, ssml: str, base: Manner) -> list[Passage]:
    passages = []
    for marked in parse_ssml(ssml, frontend.capabilities):
        speed, pitch = base.speed * marked.speed, base.pitch * marked.pitch
        check_range("speed", speed, MIN_SPEED, MAX_SPEED)
        check_range("pitch", pitch, MIN_PITCH, MAX_PITCH)
        manner = Manner(marked.voice, speed, base.volume * marked.volume, pitch)
        spoken = options if marked.language is None else replace(options, language=marked.language)
        try:
            segments = frontend.segments(marked.text, spoken, marked.literals)
        except TextError as error:
            if error.code not in _WORDLESS:
                raise
            segments = []
        passages.append(Passage(manner, tuple(segments), marked.break_after_s))
    return passages


def parts_of(passages: Sequence[Passage], roles: Mapping[str | None, Role], wish: SpeechWish, seed: int) -> list[Part]:
    """One part for consecutive passages of one manner with no pause between; `roles` by the passages' voices."""
    parts: list[Part] = []
    last: Passage | None = None
    for passage in passages:
        if last is not None and not last.pause_s and (not passage.segments or passage.manner == last.manner):
            last = Passage(last.manner, last.segments + passage.segments, passage.pause_s)
            parts.pop()
        else:
            last = passage
        parts.append(_part(last, roles, wish, (seed + len(parts)) % _SEEDS))
    return parts


def _part(passage: Passage, roles: Mapping[str | None, Role], wish: SpeechWish, seed: int) -> Part:
    manner = passage.manner
    if not passage.segments:
        return Part(None, pause_s=passage.pause_s)
    request = SpeechRequest(
        segments=tuple(segment.tokens_text for segment in passage.segments),
        **vars(roles[manner.voice]),
        stream=wish.stream,
        speed=manner.speed,
        seed=seed,
        sampling=wish.sampling,
    )
    return Part(request, passage.segments, manner.volume, manner.pitch, passage.pause_s)
