"""A folder of small JSON records that several processes share: atomic writes, and a cheap look at what others wrote.

A record is `{id}.json`, and perhaps files beside it that it names. The JSON is written last: it is the commit. A look
costs one `fstat` of the folder, at most once a second, until something in it has changed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from runners.folder_writes import alone, make_durable, unlink, write
from runners.storage_errors import as_request_errors, unavailable

logger = logging.getLogger("cosyserve.records")

LOOK_SECONDS = 1.0
"""Between two looks at the folder."""
SETTLE_SECONDS = 3.0
"""The folder is read again and again for so long after its time has changed: that time is as coarse as 2 s."""
READ_SECONDS = 20.0
"""After which the folder is read whatever its time says: not every file system keeps it."""
LEFTOVER_SECONDS = 3600.0
"""What a killed writer left behind is removed after so long; a younger file may be a record that is being restored."""
MAX_RECORD_BYTES = 4 * 2**20
_MAX_WANTED = (
    1000  # characters of a name or id that is looked for: a name of 100 may be written with several times that
)


class Record(Protocol):
    """What is kept, a frozen dataclass."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def created_at(self) -> int:
        """Unix time in seconds."""

    @property
    def files(self) -> Mapping[str, int]:
        """Name and size of the files beside the JSON that belong to it."""


Kept = TypeVar("Kept", bound=Record)


def name_as_kept(name: str) -> str:
    """NFC, without spaces around: so that names which look the same are the same."""
    return unicodedata.normalize("NFC", name).strip()


@dataclass(frozen=True)
class _Entry(Generic[Kept]):
    """A file that should hold a record. Of one that is damaged the name is kept, so far as it is known; of one that
    could not be read (`unread`) nobody knows what it would hold."""

    signature: tuple[int, int, int]  # inode, size, time in ns
    record: Kept | None
    problem: str = ""
    name: str | None = None
    unread: bool = False


class RecordFolder(Generic[Kept]):
    """Records of one `kind` in `folder`; ids are `{kind}_` and 24 random hex digits. Thread-safe.

    Methods block, for as long as the file system does. Every method raises RequestError: voice_store_unavailable,
    and where it writes voice_store_full, voice_store_read_only.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        record: type[Kept],
        on_change: Callable[[Mapping[str, Kept], int], None] = lambda records, damaged: None,
    ) -> None:
        """`on_change` is told all records, and how many are skipped because they are damaged, when either differs."""
        self.folder = folder
        self._kind = kind
        self._form = TypeAdapter(record)
        self._on_change = on_change
        self._id = re.compile(rf"{kind}_[0-9a-f]{{24}}")
        self._file = re.compile(rf"(?P<id>{self._id.pattern})\.(?P<rest>.+)|\.{kind}_.+\.draft")
        self._entries: dict[str, _Entry[Kept]] = {}
        self._records: dict[str, Kept] = {}  # replaced, never changed: readers take no lock
        self._ids: dict[str, str] = {}  # by name
        self._reserved: dict[str, str] = {}  # ids of damaged records by name
        self._leftovers: list[str] = []
        self._scanning = threading.Lock()
        self._read_at = self._look_at = self._settled_at = -float("inf")
        self._folder_time = 0

    def records(self) -> Mapping[str, Kept]:
        """All by id, the oldest first, as they were at most a second ago."""
        if time.monotonic() >= self._look_at:
            with as_request_errors(self.folder):
                self._look()
        return self._records

    def find(self, wanted: str) -> Kept | None:
        """The record of that id, else of that name: of several the oldest."""
        records = self.records()
        if len(wanted) > _MAX_WANTED:
            return None
        return records.get(wanted) or records.get(self._ids.get(name_as_kept(wanted), ""))

    def holder(self, name: str) -> str | None:
        """The id of the record that has that name, also if it is damaged: whoever mends it finds its name free."""
        self.records()
        return self._ids.get(name) or self._reserved.get(name)

    def new_id(self) -> str:
        return f"{self._kind}_{secrets.token_hex(12)}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone among all writers of the folder, with everything known that they wrote."""
        with as_request_errors(self.folder), alone(self.folder):
            self._look(now=True)
            if unread := [record_id for record_id, entry in self._entries.items() if entry.unread]:
                raise unavailable(f"{unread[0]} cannot be read, so its name is not known")
            self._sweep()
            try:
                yield
            finally:
                self._look(now=True)

    def put(self, record: Kept, contents: Mapping[str, bytes]) -> None:
        """Write the files of `contents` and then the record; only inside `writing`. Of a failure nothing stays."""
        old = self._records.get(record.id)
        outdated = set(old.files) if old is not None else set()
        try:
            for name, data in contents.items():
                write(self.folder, name, data)
            make_durable(self.folder)  # the record must not outlive a power cut that its files do not
            write(self.folder, f"{record.id}.json", self._form.dump_json(record, indent=2) + b"\n")
        except BaseException:
            unlink(self.folder, set(contents) - outdated)
            raise
        make_durable(self.folder)
        unlink(self.folder, outdated - set(record.files))

    def remove(self, record: Kept) -> None:
        """Only inside `writing`."""
        os.unlink(self.folder / f"{record.id}.json")  # without it the rest is no record
        make_durable(self.folder)
        unlink(self.folder, record.files)

    def refresh(self) -> None:
        """Read the folder now."""
        with as_request_errors(self.folder):
            self._look(now=True)

    def _look(self, now: bool = False) -> None:
        # One reader is enough: while it waits for a slow disk, the others go on with what is known.
        if not self._scanning.acquire(blocking=now or self._read_at < 0):
            return
        try:
            began = time.monotonic()
            # Opening the folder makes NFS ask its server for the folder's time; `stat` alone may be a minute old.
            opened = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                folder_time = os.fstat(opened).st_mtime_ns
                if folder_time != self._folder_time:
                    self._folder_time, self._settled_at = folder_time, began + SETTLE_SECONDS
                if now or began < self._settled_at or began - self._read_at >= READ_SECONDS:
                    self._read(opened)
                    self._read_at = began
            finally:
                os.close(opened)
            self._look_at = began + LOOK_SECONDS
        finally:
            self._scanning.release()

    def _read(self, opened: int) -> None:
        entries: dict[str, _Entry[Kept]] = {}
        beside: list[tuple[str, str]] = []
        with os.scandir(opened) as names:
            for item in names:
                match = self._file.fullmatch(item.name)
                if match is None:
                    continue
                if match["rest"] != "json":
                    beside.append((item.name, match["id"] or ""))
                    continue
                with suppress(FileNotFoundError):  # removed in this moment
                    entries[match["id"]] = self._entry(match["id"], item)
        self._leftovers = [name for name, owner in beside if _is_leftover(name, entries.get(owner))]
        if entries != self._entries:
            self._entries = entries
            found = [entry.record for entry in entries.values() if entry.record is not None]
            found.sort(key=lambda record: (record.created_at, record.id))
            self._ids = {record.name: record.id for record in reversed(found)}
            self._reserved = {entry.name: key for key, entry in entries.items() if entry.name is not None}
            self._records = {record.id: record for record in found}
            self._on_change(self._records, len(entries) - len(found))

    def _entry(self, record_id: str, item: os.DirEntry[str]) -> _Entry[Kept]:
        known = self._entries.get(record_id)
        signature, data, unread = (0, 0, 0), b"", False
        try:
            status = item.stat()
            signature = (status.st_ino, status.st_size, status.st_mtime_ns)
            if known is not None and known.signature == signature and known.record is not None:
                return known
            data = self._content(record_id, status.st_size)
            return _Entry(signature, self._load(record_id, data))
        except FileNotFoundError:
            raise
        except OSError as error:  # of the disk, not of the record: what was known of it still holds
            if known is not None and known.record is not None:
                return known
            problem, unread = error.strerror or str(error), not isinstance(error, IsADirectoryError)
        except Exception as error:  # whatever a damaged file makes of its record
            problem = " ".join(str(error).split())[:300]
        if known is None or (known.signature, known.problem) != (signature, problem):
            logger.warning("%s is skipped: %s", self.folder / f"{record_id}.json", problem)
        return _Entry(signature, None, problem, _name_in(data) or _name_of(known), unread)

    def _content(self, record_id: str, size: int) -> bytes:
        if size > MAX_RECORD_BYTES:
            raise ValueError(f"{size} bytes are no record")
        return (self.folder / f"{record_id}.json").read_bytes()

    def _load(self, record_id: str, data: bytes) -> Kept:
        record = self._form.validate_json(data, strict=True)
        if record.id != record_id:
            raise ValueError(f"it is the record of {record.id!r}")
        for name, length in record.files.items():
            match = self._file.fullmatch(name)
            if match is None or match["id"] != record_id:
                raise ValueError(f"{name!r} is no file of it")
            try:
                found = os.stat(self.folder / name).st_size
            except FileNotFoundError:
                raise ValueError(f"{name} is missing") from None
            if found != length:
                raise ValueError(f"{name} has {found} bytes instead of {length}")
        return record

    def _sweep(self) -> None:
        for name in self._leftovers:
            with suppress(FileNotFoundError):
                # The time of the inode's last change: that of its content travels along when a backup is restored.
                if time.time() - os.stat(self.folder / name).st_ctime > LEFTOVER_SECONDS:
                    os.unlink(self.folder / name)
                    logger.info("%s was left by a writer that was stopped; it is removed", self.folder / name)


def _name_in(data: bytes) -> str | None:
    """The name that a damaged record still tells."""
    with suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict) and isinstance(name := content.get("name"), str):
            return name
    return None


def _name_of(entry: _Entry | None) -> str | None:
    """What was known of it before it was damaged."""
    if entry is None:
        return None
    return entry.name if entry.record is None else entry.record.name


def _is_leftover(name: str, owner: _Entry | None) -> bool:
    """A draft, or a file that no record names. A damaged record may name it: whoever mends it needs the file."""
    if owner is None:
        return True
    return owner.record is not None and name not in owner.record.files
