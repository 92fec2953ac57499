"""What the entry service asks of the engine, and its form on the wire. No torch here: both processes import it."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, fields

from models.conditioning import Conditioning
from models.errors import ModelError

_LENGTH = struct.Struct("<I")
INCREMENTAL_TOKENS = 120
"""Text tokens of an incremental utterance at most: its memory is set aside before its text is known."""


class RequestError(Exception):
    """The engine cannot or will not do this. `code` is stable, `status` is the HTTP status it becomes.

    `retry_after`: seconds until a 429 or 503 is worth another try, where that is known.
    """

    def __init__(self, code: str, message: str, status: int = 400, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.retry_after = code, message, status, retry_after


@dataclass(frozen=True)
class Sampling:
    """How speech tokens are drawn; None: as the model was tuned.

    `temperature` divides the log-probabilities, `top_p` and `top_k` bound the nucleus. `max_new_tokens`: speech tokens
    of one segment at most.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class SpeechRequest:
    """One request for speech.

    `segments` are texts for the model's tokenizer, each one utterance, spoken in order. The voice is either a preset
    (`voice`) or `conditioning` with `prompt_text`, its transcript (none: cross-lingual). `instructions` turns the
    request into instruct mode; `cross_lingual` leaves out the transcript that a preset has. `source_tokens` (25 Hz
    speech tokens) instead of segments is voice conversion. `stream` picks the streaming schedule, otherwise each
    segment is synthesised in one pass. `incremental`: there are no segments; the text of its one utterance follows
    while it is spoken. Requests of different `tenant`s take turns; one that `continues` a speech that is being heard is
    never refused for what it would have to wait. `traceparent` (W3C): the trace that goes on in the engine.
    """

    segments: tuple[str, ...] = ()
    voice: str | None = None
    conditioning: Conditioning | None = None
    prompt_text: str | None = None
    instructions: str | None = None
    cross_lingual: bool = False
    source_tokens: tuple[int, ...] = ()
    incremental: bool = False
    stream: bool = True
    speed: float = 1.0
    seed: int = 0
    sampling: Sampling = Sampling()
    tenant: str = ""
    continues: bool = False
    traceparent: str = ""

    def to_bytes(self) -> bytes:
        """uint32 length, JSON fields, then the conditioning as safetensors (nothing when there is none)."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "conditioning"}
        head = json.dumps({**values, "sampling": asdict(self.sampling)}).encode()
        tail = self.conditioning.to_bytes() if self.conditioning is not None else b""
        return _LENGTH.pack(len(head)) + head + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> SpeechRequest:
        """The inverse of `to_bytes`. Raises RequestError engine_error."""
        try:
            (length,) = _LENGTH.unpack_from(data)
            start = _LENGTH.size
            values = json.loads(data[start : start + length])
            tail = data[start + length :]
            return cls(
                **{
                    **values,
                    "segments": tuple(values["segments"]),
                    "source_tokens": tuple(values["source_tokens"]),
                    "sampling": Sampling(**values["sampling"]),
                    "conditioning": Conditioning.from_bytes(tail) if tail else None,
                }
            )
        except (struct.error, ValueError, KeyError, TypeError, ModelError) as error:
            raise RequestError("engine_error", f"This is no request for speech: {error}.", 500) from error


@dataclass(frozen=True)
class VoiceInfo:
    """A preset voice: its id and the modes it can be used in."""

    id: str
    modes: tuple[str, ...]


@dataclass(frozen=True)
class ModelInfo:
    """What the engine has loaded, as the public surface shows it. `revision`: of the repository it was pulled from."""

    name: str
    version: int
    sample_rate: int
    default_voice: str | None
    voices: tuple[VoiceInfo, ...]
    modes: tuple[str, ...]
    languages: tuple[str, ...]
    revision: str | None = None

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> ModelInfo:
        voices = tuple(VoiceInfo(v["id"], tuple(v["modes"])) for v in values["voices"])
        return cls(
            **{
                **values,
                "voices": voices,
                "modes": tuple(values["modes"]),
                "languages": tuple(values["languages"]),
            }
        )
