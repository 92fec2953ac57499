"""A folder of small JSON records that several processes share: atomic writes, and a cheap look at what others wrote.

A record is `{id}.json`, and perhaps files beside it that it names. The JSON is written last: it is the commit. A look
costs one `fstat` of the folder, at most once a second, until something in it has changed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from runners.storage_errors import as_request_errors, unavailable

logger = logging.getLogger("cosyserve.records")

LOOK_SECONDS = 1.0
"""Between two looks at the folder."""
SETTLE_SECONDS = 3.0
"""The folder is read again and again for so long after its time has changed: that time is as coarse as 2 s."""
READ_SECONDS = 20.0
"""After which the folder is read whatever its time says: not every file system keeps it."""
LOCK_SECONDS = 10.0
LEFTOVER_SECONDS = 3600.0
"""What a killed writer left behind is removed after so long; a younger file may be a record that is being restored."""
MAX_RECORD_BYTES = 4 * 2**20
_LOCK_FILE = ".lock"


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


@dataclass(frozen=True)
class _Entry(Generic[Kept]):
    signature: tuple[int, int, int]  # inode, size, time in ns
    record: Kept | None
    problem: str = ""


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
        return records.get(wanted) or records.get(self._ids.get(wanted, ""))

    def new_id(self) -> str:
        return f"{self._kind}_{secrets.token_hex(12)}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone among all writers of the folder, with everything known that they wrote."""
        with as_request_errors(self.folder), self._alone():
            self._look(now=True)
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
                self._write(name, data)
            self._make_durable()  # the record must not outlive a power cut that its files do not
            self._write(f"{record.id}.json", self._form.dump_json(record, indent=2) + b"\n")
        except BaseException:
            self._unlink(set(contents) - outdated)
            raise
        self._make_durable()
        self._unlink(outdated - set(record.files))

    def remove(self, record: Kept) -> None:
        """Only inside `writing`."""
        os.unlink(self.folder / f"{record.id}.json")  # without it the rest is no record
        self._make_durable()
        self._unlink(record.files)

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
                    status = item.stat()
                    signature = (status.st_ino, status.st_size, status.st_mtime_ns)
                    entries[match["id"]] = self._entry(match["id"], signature)
        self._leftovers = [name for name, owner in beside if _is_leftover(name, entries.get(owner))]
        if entries != self._entries:
            self._entries = entries
            found = [entry.record for entry in entries.values() if entry.record is not None]
            found.sort(key=lambda record: (record.created_at, record.id))
            self._ids = {record.name: record.id for record in reversed(found)}
            self._records = {record.id: record for record in found}
            self._on_change(self._records, len(entries) - len(found))

    def _entry(self, record_id: str, signature: tuple[int, int, int]) -> _Entry[Kept]:
        known = self._entries.get(record_id)
        if known is not None and known.signature == signature and known.record is not None:
            return known
        try:
            return _Entry(signature, self._load(record_id, signature[1]))
        except FileNotFoundError:
            raise
        except Exception as error:  # whatever a damaged file makes of its record
            problem = " ".join(str(error).split())[:300]
        if known is None or (known.signature, known.problem) != (signature, problem):
            logger.warning("%s is skipped: %s", self.folder / f"{record_id}.json", problem)
        return _Entry(signature, None, problem)

    def _load(self, record_id: str, size: int) -> Kept:
        if size > MAX_RECORD_BYTES:
            raise ValueError(f"{size} bytes are no record")
        record = self._form.validate_json((self.folder / f"{record_id}.json").read_bytes(), strict=True)
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

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self.folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            self._lock(lock)
            yield
        finally:
            os.close(lock)  # and the lock goes; so it does when the process is killed

    def _lock(self, lock: int) -> None:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise unavailable(f"another writer has held it for {LOCK_SECONDS:g} s") from None
                time.sleep(0.01)
            except OSError as error:  # a file system without locks: two replicas may then take one name at once
                logger.warning("%s cannot be locked (%s); names may be taken twice", self.folder, error.strerror)
                return

    def _sweep(self) -> None:
        for name in self._leftovers:
            with suppress(FileNotFoundError):
                # The time of the inode's last change: that of its content travels along when a backup is restored.
                if time.time() - os.stat(self.folder / name).st_ctime > LEFTOVER_SECONDS:
                    os.unlink(self.folder / name)
                    logger.info("%s was left by a writer that was stopped; it is removed", self.folder / name)

    def _write(self, name: str, data: bytes) -> None:
        draft = self.folder / f".{name}.{secrets.token_hex(4)}.draft"
        try:
            opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
            with open(opened, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(opened)
            os.replace(draft, self.folder / name)
        except BaseException:
            self._unlink([draft.name])
            raise

    def _unlink(self, names: Iterable[str]) -> None:
        """What cannot be removed now is a leftover."""
        for name in names:
            with suppress(OSError):
                os.unlink(self.folder / name)

    def _make_durable(self) -> None:
        opened = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _is_leftover(name: str, owner: _Entry | None) -> bool:
    """A draft, or a file that no record names. A damaged record may name it: whoever mends it needs the file."""
    if owner is None:
        return True
    return owner.record is not None and name not in owner.record.files
