"""What a client wants spoken and how, whatever protocol asked; and what of it is refused before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from api.errors import ApiError
from api.names import model_names, own_name
from api.references import Reference
from api.schema import MAX_INSTRUCTIONS, MAX_REF_TEXT, MAX_SEED
from runners.request import ModelInfo, Sampling
from text.options import AUTO, LANGUAGES, TextOptions

if TYPE_CHECKING:
    from api.dictation import Arriving

MIN_SPEED, MAX_SPEED = 0.25, 4.0
MIN_PITCH, MAX_PITCH = 0.5, 2.0
PLAIN_VOLUME, MAX_VOLUME = 50.0, 100.0
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 8_000, 48_000
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 0.001, 3600.0
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 2.0
MIN_TOP_P = 0.01
MAX_TOP_K = 1000
MIN_NEW_TOKENS, MAX_NEW_TOKENS = 25, 4096  # a second and more
TASKS = ("sft", "zero_shot", "cross_lingual", "instruct")
INPUT_TYPES = ("text", "ssml")
# A name for the `voice` field that SDKs insist on, when ref_audio brings the voice.
INLINE_VOICE = "inline"


@dataclass(frozen=True)
class SpeechWish:
    """What is to be spoken and how.

    `voice`: a preset, or the id or name of a saved voice; None or "": the model's own, or that of `ref_audio`. `seed`
    None: any. `task_type` None: what follows from the rest. `language` "auto": that of `options`, where "auto" means
    found in the text. `dictionaries`: ids of stored pronunciation dictionaries. `sample_rate` None: the model's.
    `volume`: 0 to 100, 50 leaves the model's. `pitch`: a ratio. `timeout_s` None: no deadline. `continues`: it goes on
    with a speech that is being heard. `arriving`: the text, where it is still being written, in place of `text`.
    """

    text: str
    voice: str | None = None
    speed: float = 1.0
    seed: int | None = None
    instructions: str | None = None
    ref_audio: Reference | None = None
    ref_text: str | None = None
    stream: bool = True
    task_type: str | None = None
    language: str = AUTO
    input_type: str = "text"
    options: TextOptions = field(default_factory=TextOptions)
    dictionaries: tuple[str, ...] = ()
    sample_rate: int | None = None
    volume: float = PLAIN_VOLUME
    pitch: float = 1.0
    sampling: Sampling = field(default_factory=Sampling)
    timeout_s: float | None = None
    continues: bool = False
    arriving: Arriving | None = None


def check_wish(wish: SpeechWish, info: ModelInfo) -> None:
    """Refuse what can be refused by the wish alone. Raises ApiError; `param` is the field of the speech endpoint."""
    check_range("speed", wish.speed, MIN_SPEED, MAX_SPEED)
    check_range("seed", wish.seed, 0, MAX_SEED)
    check_range("volume", wish.volume, 0.0, MAX_VOLUME)
    check_range("pitch", wish.pitch, MIN_PITCH, MAX_PITCH)
    check_range("sample_rate", wish.sample_rate, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE)
    check_range("timeout_s", wish.timeout_s, MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)
    check_range("temperature", wish.sampling.temperature, MIN_TEMPERATURE, MAX_TEMPERATURE)
    check_range("top_p", wish.sampling.top_p, MIN_TOP_P, 1.0)
    check_range("top_k", wish.sampling.top_k, 1, MAX_TOP_K)
    check_range("max_new_tokens", wish.sampling.max_new_tokens, MIN_NEW_TOKENS, MAX_NEW_TOKENS)
    check_choice("input_type", wish.input_type, INPUT_TYPES)
    if wish.language != AUTO and wish.language not in (known := info.languages or LANGUAGES):
        message = f"This model speaks {', '.join(known)}, not {wish.language!r}."
        raise ApiError(400, "unsupported_language", message, "language")
    for name, value, limit in (
        ("instructions", wish.instructions, MAX_INSTRUCTIONS),
        ("ref_text", wish.ref_text, MAX_REF_TEXT),
    ):
        if value is not None and len(value) > limit:
            raise ApiError(400, "invalid_value", f"{name} has {len(value):,} characters, over {limit:,}.", name)
    _check_voice(wish, info)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raises ApiError invalid_value."""
    if value not in choices:
        raise ApiError(400, "invalid_value", f"{name} is one of {', '.join(choices)}, not {value!r}.", name)


def check_format(audio_format: str, formats: Sequence[str], name: str) -> None:
    """Raises ApiError unsupported_format."""
    if audio_format not in formats:
        message = f"No format {audio_format!r}; there are {', '.join(formats)}."
        raise ApiError(400, "unsupported_format", message, name)


def check_model(name: str | None, info: ModelInfo) -> None:
    """Raises ApiError model_not_found for a name that the loaded model does not have."""
    if name and name not in model_names(info):
        raise ApiError(404, "model_not_found", f"No model {name!r}; this server has {own_name(info)!r}.", "model")


def check_range(name: str, value: float | None, least: float, most: float) -> None:
    """Raises ApiError invalid_value."""
    if value is not None and not least <= value <= most:  # NaN is in no range
        raise ApiError(400, "invalid_value", f"{name} must be from {least:,} to {most:,}, not {value:,}.", name)


def _check_voice(wish: SpeechWish, info: ModelInfo) -> None:
    if wish.ref_text is not None and wish.instructions is not None:
        raise ApiError(400, "invalid_value", "instructions take no transcript: leave ref_text out.", "ref_text")
    if wish.instructions is not None and "instruct" not in info.modes:
        raise ApiError(400, "unsupported_parameter", "This model does not follow instructions.", "instructions")
    if wish.ref_text is not None and wish.ref_audio is None:
        raise ApiError(400, "invalid_value", "ref_text is the transcript of ref_audio, which is missing.", "ref_text")
    if wish.ref_audio is not None and wish.voice not in (None, "", INLINE_VOICE):
        message = f"Give voice or ref_audio, not both (voice {INLINE_VOICE!r} may stand beside ref_audio)."
        raise ApiError(400, "voice_conflict", message, "voice")
    if wish.task_type is None:
        return
    check_choice("task_type", wish.task_type, TASKS)
    if (wish.task_type == "instruct") != (wish.instructions is not None):
        raise ApiError(400, "invalid_value", "task_type instruct and instructions go together.", "task_type")
    if wish.task_type == "sft" and wish.ref_audio is not None:
        raise ApiError(400, "invalid_value", "task_type sft takes a preset voice, not ref_audio.", "task_type")
    if wish.task_type == "zero_shot" and wish.ref_audio is not None and wish.ref_text is None:
        raise ApiError(400, "invalid_value", "task_type zero_shot needs ref_text beside ref_audio.", "task_type")
    if wish.task_type == "cross_lingual" and wish.ref_text is not None:
        raise ApiError(400, "invalid_value", "task_type cross_lingual takes no ref_text.", "task_type")
