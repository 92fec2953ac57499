"""A small text file that is read again when it has changed, while the server runs."""

from __future__ import annotations

from pathlib import Path


class WatchedFile:
    """`name`: the setting that names the file, for the sentence about one that cannot be read."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._name = path, name
        self._read_at: tuple[int, ...] | None = ()

    def changed(self) -> str | None:
        """The text, if it may be another one than at the last call. Raises ValueError, once for each change."""
        stamp = self._stamp()
        if stamp == self._read_at:
            return None
        self._read_at = stamp
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self._name}={self.path} cannot be read.") from error

    def _stamp(self) -> tuple[int, ...] | None:
        """Another one whenever the file has changed, or the link that leads to it; None: there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
