"""`/v1/pronunciation-dictionaries`: how words are said, saved once and named by requests."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from api.answer_models import Deleted
from api.at_fault import at_fault
from api.errors import ApiError
from api.schema import PronunciationBody, read_body
from api.threads import STORE_READERS, STORE_WRITERS, run_in
from runners.record_folder import RecordFolder
from runners.request import RequestError
from runners.voice_record import checked_name
from runners.voice_store import FOLDER_VARIABLE
from text.errors import TextError
from text.pronunciation import MAX_PRONUNCIATIONS, Pronunciation

MAX_DICTIONARIES = 1000
MAX_ENTRIES = 100_000
"""Of all dictionaries in one store: they stay in memory, some 0.5 kB each."""
_ENTRY_FIELDS = tuple(field.name for field in fields(Pronunciation))
_AT_FAULT = {"invalid_value": "name", "dictionary_exists": "name", "dictionary_not_found": "dictionary_id"}


@dataclass(frozen=True)
class Dictionary:
    """A saved pronunciation dictionary."""

    id: str
    name: str
    created_at: int  # Unix time, seconds
    pronunciations: tuple[Pronunciation, ...]

    @property
    def files(self) -> Mapping[str, int]:
        return {}


class DictionaryStore:
    """Dictionaries in the folder of the voices, as JSON; what other processes change is seen a second later.

    Thread-safe. Methods block on the disk: call them in a thread. Every method raises RequestError
    voice_store_unavailable (503); those that write also voice_store_full (507) and voice_store_read_only (503).
    """

    def __init__(self, folder: str | Path) -> None:
        self._records = RecordFolder(Path(folder), "dictionary", Dictionary)

    @classmethod
    def from_environment(cls) -> DictionaryStore | None:
        """The store in COSYSERVE_VOICES; None where nothing is to be saved."""
        folder = os.environ.get(FOLDER_VARIABLE)
        return cls(folder) if folder else None

    def warm_up(self) -> None:
        """Reads the folder. Raises RequestError."""
        self._records.refresh()

    def get(self, dictionary: str) -> tuple[Pronunciation, ...]:
        """The entries of the dictionary with that id or name. Raises RequestError dictionary_not_found (404)."""
        return self.record(dictionary).pronunciations

    def record(self, dictionary: str) -> Dictionary:
        """See `get`."""
        record = self._records.find(dictionary)
        if record is None:
            raise RequestError("dictionary_not_found", f"No pronunciation dictionary {dictionary!r}.", 404)
        return record

    def list(self) -> Sequence[Dictionary]:
        """All, the oldest first."""
        return [*self._records.records().values()]

    def create(self, name: str, pronunciations: Sequence[Pronunciation], *, overwrite: bool = False) -> Dictionary:
        """Save a dictionary. With `overwrite` one of that name is replaced and keeps its id.

        Raises RequestError: invalid_value (400), dictionary_exists, too_many_dictionaries (409).
        """
        name = checked_name(name)
        with self._records.writing():
            held = self._records.holder(name)
            if held is not None and not overwrite:
                message = f"There is a dictionary {name!r} already; overwrite=true replaces it."
                raise RequestError("dictionary_exists", message, 409)
            others = [record for record in self._records.records().values() if record.id != held]
            if len(others) >= MAX_DICTIONARIES:
                message = f"There are {MAX_DICTIONARIES:,} dictionaries, as many as are kept: delete one first."
                raise RequestError("too_many_dictionaries", message, 409)
            entries = sum(len(record.pronunciations) for record in others) + len(pronunciations)
            if entries > MAX_ENTRIES:
                message = f"All dictionaries would have {entries:,} entries, over {MAX_ENTRIES:,}: delete one first."
                raise RequestError("too_many_dictionaries", message, 409)
            record = Dictionary(held or self._records.new_id(), name, int(time.time()), tuple(pronunciations))
            self._records.put(record, {})
        return record

    def delete(self, dictionary: str) -> Dictionary:
        """Remove the dictionary with that id or name. Raises RequestError dictionary_not_found (404)."""
        with self._records.writing():
            record = self.record(dictionary)
            self._records.remove(record)
        return record


class DictionaryBody(BaseModel):
    """The body of `POST /v1/pronunciation-dictionaries`."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="1 to 100 printable characters, no other dictionary's.")
    pronunciations: list[PronunciationBody] = Field(min_length=1, max_length=MAX_PRONUNCIATIONS)
    overwrite: StrictBool = Field(False, description="Replace the dictionary of that name; it keeps its id.")


class DictionaryEntry(BaseModel):
    """A dictionary without its entries."""

    id: str
    name: str
    entries: int = Field(description="How many it has.")
    created_at: int = Field(description="Unix time, seconds.")


class DictionaryList(BaseModel):
    dictionaries: list[DictionaryEntry]


class WholeDictionary(DictionaryEntry):
    """A dictionary with its entries."""

    pronunciations: list[PronunciationBody]


def router(store: DictionaryStore | None) -> APIRouter:
    """`store` None: nothing is kept, creating answers 501."""
    routes = APIRouter()

    def needed() -> DictionaryStore:
        if store is None:
            message = "This server keeps no dictionaries: its operator has not set COSYSERVE_VOICES."
            raise ApiError(501, "voice_store_off", message)
        return store

    @routes.get("/v1/pronunciation-dictionaries")
    async def all_dictionaries() -> DictionaryList:
        """The dictionaries that `pronunciation_dictionary_ids` takes."""
        found = [] if store is None else await run_in(STORE_READERS, store.list)
        return DictionaryList(dictionaries=[_entry(dictionary) for dictionary in found])

    @routes.post(
        "/v1/pronunciation-dictionaries",
        status_code=201,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": DictionaryBody.model_json_schema()}},
            }
        },
    )
    async def save_dictionary(request: Request, response: Response) -> DictionaryEntry:
        """Save a dictionary; requests name it by its id or name."""
        body = await read_body(request, DictionaryBody)
        pronunciations = await run_in(STORE_WRITERS, _pronunciations, body.pronunciations)
        with at_fault(codes=_AT_FAULT):
            dictionary = await run_in(
                STORE_WRITERS, needed().create, body.name, pronunciations, overwrite=body.overwrite
            )
        response.headers["Location"] = f"/v1/pronunciation-dictionaries/{dictionary.id}"
        return _entry(dictionary)

    @routes.get("/v1/pronunciation-dictionaries/{dictionary_id}", response_model=WholeDictionary)
    async def one_dictionary(dictionary_id: str) -> Response:
        """A dictionary by its id or name, with its entries."""
        if store is None:
            message = f"No pronunciation dictionary {dictionary_id!r}."
            raise ApiError(404, "dictionary_not_found", message, "dictionary_id")
        with at_fault(codes=_AT_FAULT):
            return await run_in(STORE_READERS, _whole, store, dictionary_id)

    @routes.delete("/v1/pronunciation-dictionaries/{dictionary_id}")
    async def delete_dictionary(dictionary_id: str) -> Deleted:
        """Delete a dictionary. Requests under way keep it."""
        with at_fault(codes=_AT_FAULT):
            dictionary = await run_in(STORE_WRITERS, needed().delete, dictionary_id)
        return Deleted(id=dictionary.id, deleted=True)

    return routes


def _entry(dictionary: Dictionary) -> DictionaryEntry:
    return DictionaryEntry(
        id=dictionary.id,
        name=dictionary.name,
        entries=len(dictionary.pronunciations),
        created_at=dictionary.created_at,
    )


def _whole(store: DictionaryStore, wanted: str) -> Response:
    """With all entries: up to some megabytes, so in a thread."""
    dictionary = store.record(wanted)
    entries = [
        {name: value for name in _ENTRY_FIELDS if (value := getattr(entry, name)) is not None}
        for entry in dictionary.pronunciations
    ]
    return JSONResponse({**_entry(dictionary).model_dump(), "pronunciations": entries})


def _pronunciations(bodies: Sequence[PronunciationBody]) -> Sequence[Pronunciation]:
    entries = []
    for number, body in enumerate(bodies):
        try:
            entries.append(Pronunciation(**body.model_dump()))
        except TextError as error:
            raise ApiError(400, error.code, error.message, f"pronunciations.{number}") from error
    return entries
