"""`make model-import`: put a model folder into BentoML's model store, and say how to serve it from there."""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from launch.server import LaunchError
from launch.terminal import ProgressLine, run
from models.config import check_files, files_of, load_config
from models.errors import ModelError
from models.manifest import Manifest, read_manifest, record_of, verify, write_manifest
from runners.model_folder import SCHEME

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


def model_import(folder: Path, name: str | None, progress: ProgressLine) -> None:
    """Copy what the service reads of `folder` into the store as NAME:VERSION, the version being a hash of the files:
    the same files are the same tag. Raises LaunchError."""
    try:
        config = load_config(folder)
        check_files(config)
        name = name or re.sub("[^a-z0-9._-]", "-", config.name.lower())
        if not _NAME.fullmatch(name):
            raise LaunchError(f"{name!r} is no name for the store: use a-z, 0-9, '.', '_' and '-' with --name.")
        manifest = _manifest(folder, progress)
    except ModelError as error:
        raise LaunchError(error.message) from error
    version = hashlib.sha256(repr(sorted(manifest.files.items())).encode()).hexdigest()[:16]
    tag = f"{name}:{version}"
    try:
        _store(folder, tag, replace(manifest, name=name), progress)
    except ModelError as error:
        raise LaunchError(error.message) from error
    except OSError as error:
        raise LaunchError(f"{error.filename or folder}: {error.strerror or error}.") from error
    progress.clear()
    size = sum(record.size for record in manifest.files.values())
    print(
        f"tag      {tag}\n"
        f"size     {size / 1e6:.0f} MB, {len(manifest.files)} files\n"
        f"serve    make serve MODEL_DIR={SCHEME}{tag}"
    )


def _manifest(folder: Path, progress: ProgressLine) -> Manifest:
    """Of all that the service reads of the folder; what the folder's own manifest, if any, lists is verified first."""
    held = read_manifest(folder) or Manifest(None, {})
    verify(folder, held, lambda file: progress.show("verifying", file))
    progress.show("reading", str(folder))
    return replace(held, files={file: held.files.get(file) or record_of(folder / file) for file in files_of(folder)})


def _store(folder: Path, tag: str, manifest: Manifest, progress: ProgressLine) -> None:
    os.environ.setdefault("BENTOML_DO_NOT_TRACK", "true")
    from bentoml.exceptions import BentoMLException

    try:
        if _holds(tag):  # a save under a tag that exists would fail at its end
            return
        try:
            _save(folder, tag, manifest, progress)
        except BentoMLException:
            if not _holds(tag):  # else another import of the same files was faster
                raise
    except BentoMLException as error:
        raise LaunchError(f"{' '.join(str(error).split())}.") from error


def _holds(tag: str) -> bool:
    import bentoml

    try:
        bentoml.models.get(tag)
    except bentoml.exceptions.NotFound:
        return False
    return True


def _save(folder: Path, tag: str, manifest: Manifest, progress: ProgressLine) -> None:
    import bentoml

    labels = {"source": manifest.source or "folder", **({"repo": manifest.repo} if manifest.repo else {})}
    with bentoml.models.create(tag, labels=labels) as model:
        for file in manifest.files:
            progress.show("copying", file)
            target = Path(model.path_of(file))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, target)
        write_manifest(Path(model.path), manifest)
        verify(Path(model.path), manifest, lambda file: progress.show("verifying", file))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m launch.model_import", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--name", help="name in the store (default: the model's own)")
    options = parser.parse_args()
    sys.exit(run("model-import", functools.partial(model_import, options.folder, options.name)))
