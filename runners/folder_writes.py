"""Writes to a folder that other processes share: one writer at a time, each file whole or not there, durable."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runners.storage_errors import unavailable

logger = logging.getLogger("cosyserve.records")

LOCK_SECONDS = 10.0
_LOCK_FILE = ".lock"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Alone among all writers of `folder`. Raises OSError, and RequestError voice_store_unavailable."""
    lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(lock).st_mode & 0o777 != 0o666:
            with suppress(PermissionError):  # another user's
                os.fchmod(lock, 0o666)  # whatever the umask: whoever may write to the folder may lock it
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)  # and the lock goes; so it does when the process is killed


def _lock(lock: int, folder: Path) -> None:
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
            logger.warning("%s cannot be locked (%s); names may be taken twice", folder, error.strerror)
            return


def write(folder: Path, name: str, data: bytes) -> None:
    """The file `name`, replaced at once; as open as the folder is, whatever the umask. Raises OSError."""
    draft = folder / f".{name}.{secrets.token_hex(4)}.draft"
    try:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(opened, "wb") as file:
            os.fchmod(opened, os.stat(folder).st_mode & 0o666 | 0o600)  # replicas may run as other users
            file.write(data)
            file.flush()
            os.fsync(opened)
        os.replace(draft, folder / name)
    except BaseException:
        unlink(folder, [draft.name])
        raise


def unlink(folder: Path, names: Iterable[str]) -> None:
    """What cannot be removed now is left over."""
    for name in names:
        with suppress(OSError):
            os.unlink(folder / name)


def make_durable(folder: Path) -> None:
    """The folder's own entries survive a power cut from here on. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
