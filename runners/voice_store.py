"""The voices that were saved: a folder of `.safetensors` and JSON, shared by every replica."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path

from prometheus_client import Gauge

from models.conditioning import Conditioning
from models.config import load_config
from models.errors import ModelError
from runners.model_folder import model_folder
from runners.record_folder import RecordFolder
from runners.request import RequestError
from runners.storage_errors import as_request_errors
from runners.voice_record import (
    Consent,
    ModelKey,
    StoredVoice,
    VoiceRecord,
    checked_name,
    conditioning_file,
    model_key,
)

__all__ = ["FOLDER_VARIABLE", "ModelKey", "StoredVoice", "VoiceRecord", "VoiceStore", "model_key"]

FOLDER_VARIABLE = "COSYSERVE_VOICES"
MAX_LOADED = 64
"""Voices whose conditioning stays in memory, some 0.5 MB each."""
MAX_VOICES = 10_000
"""In one store: what is recorded of each stays in memory, up to some kilobytes."""

VOICES = Gauge(
    "cosyserve_voices",
    "Voices in the store: usable by the model, for another model, damaged.",
    ["state"],
    multiprocess_mode="mostrecent",
)


class VoiceStore:
    """Voices in `folder` for the model of `model_key`, which is called once, when the key is first needed.

    Thread-safe. Methods block on the disk: call them in a thread. What other processes save, rename and delete is seen
    a second later (plus what the file system takes). Every method raises RequestError voice_store_unavailable (503).
    """

    def __init__(self, folder: str | Path, model_key: Callable[[], ModelKey]) -> None:
        self.folder = Path(folder)
        self._model_key = model_key
        self._records = RecordFolder(self.folder, "voice", VoiceRecord, self._count)
        self._loaded: OrderedDict[str, Conditioning] = OrderedDict()
        self._loading = threading.Lock()

    @classmethod
    def from_environment(cls) -> VoiceStore | None:
        """The store in COSYSERVE_VOICES for the model of MODEL_DIR; None where nothing is to be saved."""
        folder = os.environ.get(FOLDER_VARIABLE)
        return cls(folder, lambda: model_key(load_config(model_folder()))) if folder else None

    @cached_property
    def model(self) -> ModelKey:
        """The key of the served model. Raises ModelError."""
        return self._model_key()

    def warm_up(self) -> None:
        """Makes the folder if it is missing (not its parent: that may be a volume which is not there), reads it and
        the model's key. Raises ModelError, OSError, RequestError."""
        self.folder.mkdir(exist_ok=True)
        _ = self.model
        self._records.refresh()

    def list(self) -> Sequence[VoiceRecord]:
        """All, the oldest first; those for other models too, which `usable` tells apart."""
        return [*self._records.records().values()]

    def usable(self, voice: VoiceRecord) -> bool:
        return self.model.takes(voice.model)

    def record(self, voice: str) -> VoiceRecord:
        """What is recorded of the voice with that id or name. Raises RequestError voice_not_found (404)."""
        record = self._records.find(voice)
        if record is None:
            raise RequestError("voice_not_found", f"No saved voice {voice!r}.", 404)
        return record

    def get(self, voice: str) -> StoredVoice | None:
        """The voice with that id or name, ready to speak; None: there is none.

        Raises RequestError: voice_not_usable (409: made for another model), voice_damaged (500).
        """
        record = self._records.find(voice)
        if record is None:
            return None
        ready = self._ready(record)
        if ready is not None:
            return ready
        self._records.refresh()  # deleted or replaced since the folder was read
        record = self._records.find(voice)
        if record is None:
            return None
        ready = self._ready(record)
        if ready is None:
            raise _damaged(record)
        return ready

    def check_free(self, name: str, overwrite: bool = False) -> str:
        """The name as it would be kept. Raises RequestError: invalid_value (400), voice_exists (409)."""
        name = checked_name(name)
        if not overwrite and self._records.holder(name) is not None:
            raise _taken(name)
        return name

    def create(
        self,
        name: str,
        conditioning: Conditioning,
        *,
        consent: str,
        transcript: str | None = None,
        description: str = "",
        overwrite: bool = False,
    ) -> StoredVoice:
        """Save a voice; it is on the disk when this returns. With `overwrite` a voice of that name is replaced and
        keeps its id.

        Raises RequestError: invalid_value (400), voice_exists, too_many_voices (409), voice_store_full (507),
        voice_store_read_only (503).
        """
        data, now = conditioning.to_bytes(), int(time.time())
        sha256 = hashlib.sha256(data).hexdigest()
        with self._records.writing():
            name = self.check_free(name, overwrite)
            held = self._records.holder(name)
            if held is None and len(self._records.records()) >= MAX_VOICES:
                message = f"There are {MAX_VOICES:,} voices, as many as are kept: delete one first."
                raise RequestError("too_many_voices", message, 409)
            record = VoiceRecord(
                id=held or self._records.new_id(),
                name=name,
                transcript=transcript,
                description=description,
                consent=Consent(f"consent_{secrets.token_hex(12)}", consent, now),
                created_at=now,
                model=self.model,
                speech_tokens=len(conditioning.prompt_tokens),
                text_ids=len(conditioning.prompt_text_ids),
                sha256=sha256,
                size=len(data),
            )
            self._records.put(record, {conditioning_file(record.id, sha256): data})
        return _with(record, conditioning)

    def update(self, voice: str, *, name: str | None = None, description: str | None = None) -> VoiceRecord:
        """Rename or describe anew the voice with that id; None leaves as it is. Its sound stays.

        Raises RequestError: those of `create`, and voice_not_found (404).
        """
        new_name = None if name is None else checked_name(name)
        with self._records.writing():
            record = self.record(voice)
            if new_name is not None and self._records.holder(new_name) not in (None, record.id):
                raise _taken(new_name)
            record = replace(
                record,
                name=record.name if new_name is None else new_name,
                description=record.description if description is None else description,
            )
            self._records.put(record, {})
        return record

    def delete(self, voice: str) -> VoiceRecord:
        """Remove the voice with that id and its recording's conditioning. Raises RequestError: see `update`."""
        with self._records.writing():
            record = self.record(voice)
            self._records.remove(record)
        with self._loading:
            self._loaded.pop(record.sha256, None)
        return record

    def _ready(self, record: VoiceRecord) -> StoredVoice | None:
        if not self.usable(record):
            made_for = f"CosyVoice {record.model.version} ({record.model.name})"
            message = f"The voice {record.name!r} was made for another model, {made_for}: save it anew."
            raise RequestError("voice_not_usable", message, 409)
        with self._loading:
            conditioning = self._loaded.get(record.sha256)
            if conditioning is not None:
                self._loaded.move_to_end(record.sha256)
        if conditioning is None:
            conditioning = self._load(record)
            if conditioning is None:
                return None
            with self._loading:
                self._loaded[record.sha256] = conditioning
                while len(self._loaded) > MAX_LOADED:
                    self._loaded.popitem(last=False)
        return _with(record, conditioning)

    def _load(self, record: VoiceRecord) -> Conditioning | None:
        """None: the file is not there."""
        with as_request_errors(self.folder):
            try:
                data = (self.folder / record.conditioning_file).read_bytes()
            except FileNotFoundError:
                return None
        if hashlib.sha256(data).hexdigest() == record.sha256:
            with suppress(ModelError):
                return Conditioning.from_bytes(data)
        raise _damaged(record)

    def _count(self, records: Mapping[str, VoiceRecord], damaged: int) -> None:
        usable = sum(map(self.usable, records.values()))
        for state, count in (("usable", usable), ("other_model", len(records) - usable), ("damaged", damaged)):
            VOICES.labels(state).set(count)


def _with(record: VoiceRecord, conditioning: Conditioning) -> StoredVoice:
    values: Mapping = {field.name: getattr(record, field.name) for field in fields(VoiceRecord)}
    return StoredVoice(**values, conditioning=conditioning)


def _taken(name: str) -> RequestError:
    return RequestError("voice_exists", f"There is a voice {name!r} already; overwrite=true replaces it.", 409)


def _damaged(record: VoiceRecord) -> RequestError:
    return RequestError("voice_damaged", f"The file of the voice {record.name!r} is damaged: save it anew.", 500)
