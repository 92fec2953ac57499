"""The checksum manifest of a model folder: what its files must be, and whether they are."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from models.errors import ModelError

MANIFEST_FILE = "cosyserve-manifest.json"
_SHA256 = re.compile("[0-9a-f]{64}")
_BLOCK = 2**20  # bytes


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and SHA-256, in lower case hex, of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a model folder must hold. `files` goes by paths below the folder, with slashes.

    `source`, `repo` and `revision` say where it was pulled from; None where the manifest was made of a folder.
    """

    name: str | None
    files: Mapping[str, FileRecord]
    source: str | None = None
    repo: str | None = None
    revision: str | None = None


def read_manifest(root: Path) -> Manifest | None:
    """The manifest of the folder `root`, None if it has none. Raises ModelError manifest_invalid."""
    path = root / MANIFEST_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        files = {name: _record(name, entry) for name, entry in data.pop("files").items()}
        manifest = Manifest(files=files, **data)
        for value in (manifest.name, manifest.source, manifest.repo, manifest.revision):
            if not isinstance(value, (str, type(None))):
                raise ValueError(f"{value!r} is no text")
        return manifest
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IsADirectoryError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError("manifest_invalid", f"{path} is no manifest of CosyServe: {error}") from error


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Put `manifest` into the folder `root`, wholly or not at all. Raises OSError."""
    draft = root / f"{MANIFEST_FILE}.draft"
    draft.write_text(json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(draft, root / MANIFEST_FILE)


def check_sizes(root: Path, manifest: Manifest) -> None:
    """Compare names and sizes, which reads no file: cheap enough for every start.

    Raises ModelError checksum_mismatch.
    """
    _raise_for(root, [problem for name, record in manifest.files.items() if (problem := _misfit(root, name, record))])


def verify(root: Path, manifest: Manifest, progress: Callable[[str], None] = lambda name: None) -> None:
    """Compare names, sizes and checksums, which reads every byte. `progress` is told each file's name.

    Raises ModelError checksum_mismatch, which names every file that differs.
    """
    problems = []
    for name, record in manifest.files.items():
        progress(name)
        problem = _misfit(root, name, record)
        if problem is None and sha256_of(root / name) != record.sha256:
            problem = f"{name} has another content"
        problems += [problem] if problem else []
    _raise_for(root, problems)


def record_of(path: Path) -> FileRecord:
    return FileRecord(path.stat().st_size, sha256_of(path))


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _record(name: str, entry: Mapping[str, object]) -> FileRecord:
    size, sha256 = entry["size"], entry["sha256"]
    parts = name.split("/")
    if not all(parts) or ".." in parts:
        raise ValueError(f"{name!r} is no path below the folder")
    if type(size) is not int or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"size or sha256 of {name} is wrong")
    return FileRecord(size, sha256)


def _misfit(root: Path, name: str, record: FileRecord) -> str | None:
    path = root / name
    if not path.is_file():
        return f"{name} is missing"
    size = path.stat().st_size
    return None if size == record.size else f"{name} has {size} bytes instead of {record.size}"


def _raise_for(root: Path, problems: list[str]) -> None:
    if problems:
        raise ModelError(
            "checksum_mismatch",
            f"{root} is not what its {MANIFEST_FILE} says: {'; '.join(problems)}. Bring the files again; if the change "
            f"was meant, `python -m models manifest {root}` writes a new manifest",
        )
