"""A wish's text as passages of one voice and manner each, and as the parts that the engine is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from api.at_fault import at_fault
from api.casting import Role
from api.errors import ApiError
from api.parts import Part
from api.threads import TEXT_READERS, run_in
from api.wish import MAX_PITCH, MAX_SPEED, MIN_PITCH, MIN_SPEED, PLAIN_VOLUME, SpeechWish, check_range
from runners.request import SpeechRequest
from text.errors import TextError
from text.frontend import Analysis, Segment, TextFrontend, Warning
from text.options import AUTO, TextOptions
from text.pronunciation import Lexicon
from text.ssml import parse_ssml

if TYPE_CHECKING:
    from api.dictation import Arriving
    from api.dictionaries import DictionaryStore

WORDLESS = ("input_empty", "no_speakable_text")
"""What a passage without a word is refused with; between others it is a pause at most."""
_SEEDS = 2**63
# What is at fault where it is not the text.
_FIELDS = {
    "invalid_pronunciation": "pronunciation",
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
    """Segments, perhaps none, of one manner, and the pause after them. `tokens`: how many each segment has."""

    manner: Manner
    segments: tuple[Segment, ...]
    pause_s: float = 0.0
    tokens: tuple[int, ...] = ()
    warnings: tuple[Warning, ...] = ()


async def passages_of(frontend: TextFrontend, dictionaries: DictionaryStore | None, wish: SpeechWish) -> list[Passage]:
    """As `read_passages`, in one of the threads for text."""
    return await run_in(TEXT_READERS, read_passages, frontend, dictionaries, wish)


def read_passages(frontend: TextFrontend, dictionaries: DictionaryStore | None, wish: SpeechWish) -> list[Passage]:
    """At least one with segments. The entries of dictionaries come after the wish's own.

    Raises ApiError: dictionary_not_found and what else the store refuses, unsupported_parameter, what the text is
    refused with, and invalid_value for markup that goes beyond what the speech endpoint accepts.
    """
    options = _options(dictionaries, wish)
    manner = Manner(None, wish.speed, wish.volume / PLAIN_VOLUME, wish.pitch)
    try:
        if wish.input_type == "text":
            return [_passage(manner, frontend.analyse(wish.text, options))]
        passages = list(_of_markup(frontend, options, wish.text, manner))
        if not any(passage.segments for passage in passages):
            raise TextError("no_speakable_text", "The input has nothing that can be spoken.")
    except TextError as error:
        raise ApiError(400, error.code, error.message, _FIELDS.get(error.code, "input")) from error
    return passages


def _options(dictionaries: DictionaryStore | None, wish: SpeechWish) -> TextOptions:
    if wish.dictionaries and dictionaries is None:
        message = "This server keeps no pronunciation dictionaries."
        raise ApiError(400, "unsupported_parameter", message, "pronunciation_dictionary_ids")
    with at_fault(codes={"dictionary_not_found": "pronunciation_dictionary_ids"}):
        stored = [dictionaries.get(name) for name in wish.dictionaries] if dictionaries else []
    own = wish.options
    language = own.language if wish.language == AUTO else wish.language
    return replace(own, language=language, pronunciations=Lexicon(chain(own.pronunciations, *stored)))


def _of_markup(frontend: TextFrontend, options: TextOptions, ssml: str, base: Manner) -> Iterator[Passage]:
    try:
        written = parse_ssml(ssml, frontend.capabilities, options.language)
    except TextError as error:  # of the markup, its sounds included
        raise ApiError(400, error.code, error.message, "input") from error
    for marked in written:
        speed, pitch = base.speed * marked.speed, base.pitch * marked.pitch
        check_range("speed", speed, MIN_SPEED, MAX_SPEED)
        check_range("pitch", pitch, MIN_PITCH, MAX_PITCH)
        manner = Manner(marked.voice, speed, base.volume * marked.volume, pitch)
        spoken = options if marked.language is None else replace(options, language=marked.language)
        try:
            yield _passage(manner, frontend.analyse(marked.text, spoken, marked.literals), marked.break_after_s)
        except TextError as error:
            if error.code not in WORDLESS:
                raise
            yield Passage(manner, (), marked.break_after_s)


def _passage(manner: Manner, read: Analysis, pause_s: float = 0.0) -> Passage:
    return Passage(manner, read.segments, pause_s, read.tokens, read.warnings)


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


def arriving_part(role: Role, wish: SpeechWish, arriving: Arriving, seed: int) -> Part:
    """The part of a wish whose text is still being written."""
    request = SpeechRequest(
        **vars(role), incremental=True, stream=wish.stream, speed=wish.speed, seed=seed, sampling=wish.sampling
    )
    return Part(request, volume=wish.volume / PLAIN_VOLUME, pitch=wish.pitch, arriving=arriving)


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
