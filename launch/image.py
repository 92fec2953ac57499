"""`make image`: the bento as an OCI image, built by podman, buildah or docker, whichever is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("podman", "buildah", "docker")
VARIANTS = ("cpu", "gpu")
# Settings of pip that the build needs where the machine needs them.
PIP_SETTINGS = ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")


class ImageError(Exception):
    """The image cannot be built; the message says what to do."""


def find_engine(wanted: str | None = None) -> str:
    """The name of a container engine on PATH. Raises ImageError."""
    for engine in (wanted,) if wanted else ENGINES:
        if shutil.which(engine):
            return engine
    missing = f"no {wanted} on PATH" if wanted else f"none of {', '.join(ENGINES)} is on PATH"
    raise ImageError(f"{missing}; on Debian and Ubuntu: apt-get install podman")


def build_bento() -> str:
    """Build the bento from the project's folder; its tag."""
    result = _run([sys.executable, "-m", "bentoml", "build", "--output", "tag", str(ROOT)], capture=True)
    return result.rsplit("__tag__:", 1)[-1].strip()


def containerize(
    bento: str, variant: str, engine: str, *, arguments: Mapping[str, str] | None = None, options: Sequence[str] = ()
) -> str:
    """Build the image of a bento; its name. `arguments` of the build, `options` of the engine (`key=value`)."""
    if variant not in VARIANTS:
        raise ImageError(f"VARIANT is {', '.join(VARIANTS)}, not {variant!r}")
    release = _release()
    image = f"cosyserve:{release}-{variant}"
    given = {"VARIANT": variant, "VERSION": release, "REVISION": _revision()}
    given |= {name: os.environ[name] for name in PIP_SETTINGS if os.environ.get(name)}
    given |= arguments or {}
    command = [sys.executable, "-m", "bentoml", "containerize", bento, "--backend", engine, "--image-tag", image]
    for name, value in given.items():
        command += ["--opt", f"build-arg={name}={value}"]
    for option in options:
        command += ["--opt", option]
    # BentoML copies the bento into a temporary folder and then refuses a template outside of the current one.
    _run(command, cwd=tempfile.gettempdir())
    return image


def size_of(image: str, engine: str) -> str:
    """How large an image is, uncompressed, in the engine's own words."""
    return _run([engine, "images", "--format", "{{.Size}}", image], capture=True).strip()


def _release() -> str:
    try:
        return version("cosyserve")
    except PackageNotFoundError:
        return "0"


def _revision() -> str:
    """The commit that is built, with `-dirty` when there are changes beside it."""
    if not shutil.which("git"):
        return "unknown"
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def _run(command: Sequence[str], *, capture: bool = False, cwd: str | Path = ROOT) -> str:
    stdout = subprocess.PIPE if capture else None
    result = subprocess.run(command, cwd=cwd, stdout=stdout, text=True, check=False)
    if result.returncode:
        raise ImageError(f"`{' '.join(command[:6])} ...` failed with exit code {result.returncode}, see above")
    return result.stdout or ""


def main() -> None:
    try:
        engine = find_engine(os.environ.get("ENGINE"))
        bento = build_bento()
        image = containerize(bento, os.environ.get("VARIANT") or "cpu", engine)
        print(f"built {image} with {engine}, {size_of(image, engine)}")
    except ImageError as error:
        sys.exit(f"make image: {error}")


if __name__ == "__main__":
    main()
