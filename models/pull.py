"""Pull a model from a hub into a folder: resumable, verified, and no model before it is whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from models.config import STAGING, model_files
from models.errors import ModelError
from models.hub import Hub, RemoteFile, Snapshot
from models.manifest import FileRecord, Manifest, read_manifest, record_of, write_manifest

LOCK = ".pull.lock"  # inside a model folder; it stays, as one that was removed could be held twice
_HEADROOM = 64 * 2**20  # bytes that stay free on the disk


def pull(
    hub: Hub,
    repo: str,
    root: Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Bring the files that the service reads of `repo` into the folder `root`, and the manifest of them.

    The yaml, by which a folder is a model, comes last. What is there already is kept if it is right, so that an
    interrupted pull continues and a damaged folder is mended. `name` is what the model shall be called; `report` is
    told what goes on, a line at a time. Raises ModelError, those of Hub and: model_unrecognised, model_file_missing,
    checksum_mismatch, manifest_invalid, target_not_usable.
    """
    snapshot = hub.snapshot(repo, revision)
    files = [snapshot.files[file] for file in model_files(snapshot.files, f"{repo} on {hub.source}")]
    try:
        _check_target(root, files, hub.source, snapshot)
        with _alone(root, report):
            _check_target(root, files, hub.source, snapshot)  # another pull may have ended meanwhile
            staging = root / STAGING
            records = {file.name: record for file in files if (record := _record_if_right(root / file.name, file))}
            missing, yaml = [file for file in files if file.name not in records], files[-1]
            size = f"{len(missing)} of {len(files)} files are to come, {_mb(missing)}"
            report(f"{repo} at {snapshot.revision[:12]}: {size}")
            _check_space(root, missing)
            staging.mkdir(exist_ok=True)
            for file in missing:
                report(f"{file.name}, {_mb([file])}")
                records[file.name] = _fetch(hub, snapshot, file, staging)
                if file is not yaml:
                    _place(staging / file.name, root / file.name)
            manifest = Manifest(name, dict(sorted(records.items())), hub.source, repo, snapshot.revision)
            write_manifest(root, manifest)
            if yaml in missing:
                _place(staging / yaml.name, root / yaml.name)
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise ModelError("target_not_usable", f"{error.filename or root}: {error.strerror or error}") from error
    return manifest


@contextlib.contextmanager
def _alone(root: Path, report: Callable[[str], None]) -> Iterator[None]:
    """`root` made and locked for this process. Raises ModelError target_not_usable, OSError."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("ab") as lock:  # NFS locks only what is open for writing
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise ModelError("target_not_usable", f"another pull is at work in {root}") from error
            report(f"{root} is on a file system without locks: see that no other pull works there")
        yield


def _check_target(root: Path, files: Sequence[RemoteFile], source: str, snapshot: Snapshot) -> None:
    """A folder with another model in it is left alone: a mixture of two would pass for one."""
    held = read_manifest(root)
    if held is None:
        found = [file.name for file in files if (root / file.name).exists()]
        if found and not (root / STAGING).is_dir():
            raise ModelError(
                "target_not_usable", f"{root} holds a {found[0]} that no pull brought: give another folder with --to"
            )
        return
    same = (held.source, held.repo, held.revision) == (source, snapshot.repo, snapshot.revision)
    # A branch may have moved on under the same name.
    moved = [
        file.name
        for file in files
        if file.sha256 and file.name in held.files and held.files[file.name].sha256 != file.sha256
    ]
    if not same or moved:
        raise ModelError(
            "target_not_usable",
            f"{root} holds another model or revision ({held.repo or held.name or 'of unknown origin'} at "
            f"{held.revision}): give a folder of its own with --to",
        )


def _check_space(root: Path, missing: Sequence[RemoteFile]) -> None:
    staged = sum(path.stat().st_size for path in (root / STAGING).rglob("*") if path.is_file())
    needed = sum(file.size for file in missing) - staged + _HEADROOM
    free = shutil.disk_usage(root).free
    if missing and free < needed:
        raise ModelError(
            "target_not_usable",
            f"{root}: the disk has {free // 2**20} MB free, the pull needs {needed // 2**20} MB",
        )


def _place(staged: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged.replace(path)


def _fetch(hub: Hub, snapshot: Snapshot, file: RemoteFile, staging: Path) -> FileRecord:
    """Bring the file to its name below `staging`, if it is not there yet, and verify it."""
    staged = staging / file.name
    if (held := _record_if_right(staged, file)) is not None:
        return held
    hub.download(snapshot, file, staging)
    if (arrived := _record_if_right(staged, file)) is not None:
        return arrived
    staged.unlink()
    raise ModelError(
        "checksum_mismatch",
        f"{file.name} arrived with another checksum than {hub.source} states and was thrown away: run it again",
    )


def _record_if_right(path: Path, file: RemoteFile) -> FileRecord | None:
    """The record of the file at `path` if it is the one that the hub states, as far as it states it. Reads it once."""
    if not path.is_file() or path.stat().st_size != file.size:
        return None
    if file.git_sha1 is None:
        record = record_of(path)
        return record if file.sha256 in (None, record.sha256) else None
    content = path.read_bytes()  # what is in git itself is small
    if hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() != file.git_sha1:
        return None
    return FileRecord(len(content), hashlib.sha256(content).hexdigest())


def _mb(files: Sequence[RemoteFile]) -> str:
    return f"{sum(file.size for file in files) / 1e6:.0f} MB"
