"""A saved voice: what is recorded of it beside its conditioning, and which model it is for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from models.conditioning import Conditioning
from models.config import ModelConfig
from models.manifest import read_manifest, sha256_of
from runners.record_folder import name_as_kept
from runners.request import RequestError

MAX_NAME = 100  # characters
_LIKE_AN_ID = re.compile(r"(voice|dictionary)_[0-9a-f]{24}")


@dataclass(frozen=True)
class ModelKey:
    """The model that a voice is for. `name` is for people; a voice serves every model of equal `version` and
    `encoders`, whatever its folder is called and however its language model was tuned."""

    name: str
    version: int
    encoders: str  # a checksum of all that turns a recording into conditioning

    def takes(self, voice: ModelKey) -> bool:
        return (self.version, self.encoders) == (voice.version, voice.encoders)


@dataclass(frozen=True)
class Consent:
    """That the person who is heard agreed: in whose words, and when (Unix time, seconds)."""

    id: str
    statement: str
    given_at: int


@dataclass(frozen=True)
class VoiceRecord:
    """All but the conditioning, which is `{id}.{the first digits of its checksum}.safetensors`."""

    id: str
    name: str
    transcript: str | None  # of the recording, as its owner wrote it
    description: str
    consent: Consent
    created_at: int  # Unix time, seconds
    model: ModelKey
    speech_tokens: int  # of the recording; 0: the voice is an x-vector alone
    text_ids: int  # of a transcript that came as token ids, as upstream saves it
    sha256: str  # of the conditioning's file
    size: int  # of the same, bytes

    @property
    def consent_id(self) -> str:
        return self.consent.id

    @property
    def conditioning_file(self) -> str:
        return conditioning_file(self.id, self.sha256)

    @property
    def files(self) -> Mapping[str, int]:
        return {self.conditioning_file: self.size}


@dataclass(frozen=True, eq=False)
class StoredVoice(VoiceRecord):
    """A saved voice, ready to speak: exactly the conditioning that its recording gave.

    Its `prompt_text_ids` are filled only where `text_ids` is not 0; drop them to speak cross-lingually.
    """

    conditioning: Conditioning


def conditioning_file(voice_id: str, sha256: str) -> str:
    """Named by its content, so that one voice's new conditioning never stands under an old record."""
    return f"{voice_id}.{sha256[:16]}.safetensors"


def model_key(config: ModelConfig) -> ModelKey:
    """The key of a model folder. Checksums come from its manifest, else every byte of its two encoders is read.

    Raises ModelError manifest_invalid, and OSError.
    """
    manifest = read_manifest(config.root)
    known = manifest.files if manifest is not None else {}
    files = ("campplus.onnx", f"speech_tokenizer_v{config.version}.onnx")
    sums = [known[name].sha256 if name in known else sha256_of(config.root / name) for name in files]
    form = {"files": sums, "mel": asdict(config.mel), "token_mel_ratio": config.token_mel_ratio}
    digest = hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()
    return ModelKey(config.name, config.version, digest[:32])


def checked_name(name: str) -> str:
    """The name as it is kept (NFC, without spaces around). Raises RequestError invalid_value."""
    kept = name_as_kept(name)
    if not 1 <= len(kept) <= MAX_NAME or not kept.isprintable():
        message = f"A name has 1 to {MAX_NAME} characters, all of them printable."
        raise RequestError("invalid_value", message)
    if _LIKE_AN_ID.fullmatch(kept):
        raise RequestError("invalid_value", "A name must not look like an id.")
    return kept
