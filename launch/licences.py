"""`python -m launch.licences`: the licences of what the images bring, from the packages' own metadata, as a page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^ ;]+)")
_CLASSIFIER = "License :: "
_LONGEST = 60  # characters: some packages give their licence's whole text for its name
_ABOUT = """# Licences

What the CPU image installs (`requirements-cpu.lock`), with the licence that each package states. The command
`.venv/bin/python -m launch.licences` writes this page. An image also holds its own bill of materials,
`/usr/share/doc/cosyserve/sbom.cdx.json`. PyAV (`av`) brings FFmpeg, built under the LGPL, version 3 or later.

Vulnerabilities: `pip-audit -r requirements-cpu.lock --no-deps --disable-pip` asks the advisory database about every
pinned version. It needs the network, so no test runs it: run it before each release and after each `make lock`.

| package | version | licence |
|---|---|---|
"""
_GPU = """
The GPU image (`requirements-gpu.lock`) has besides, those of `nvidia-` and `cuda-` under NVIDIA's own terms:
{}.
"""


@dataclass(frozen=True)
class Package:
    """One line of a lock."""

    name: str
    version: str


def pinned(lock: str) -> list[Package]:
    """The packages of `requirements-{lock}.lock`, by name."""
    lines = (ROOT / f"requirements-{lock}.lock").read_text(encoding="utf-8").splitlines()
    return sorted((Package(*match.groups()) for line in lines if (match := _PIN.match(line))), key=lambda one: one.name)


def licence(package: Package) -> str | None:
    """As the package states it in the version that is installed here; None where none is."""
    try:
        return _stated(distribution(package.name))
    except PackageNotFoundError:
        return None


def _stated(found: Distribution) -> str:
    expression, text = _field(found, "License-Expression"), _field(found, "License")
    classifiers = [
        value.rpartition(" :: ")[2]
        for value in found.metadata.get_all("Classifier") or []
        if value.startswith(_CLASSIFIER) and value != "License :: OSI Approved"
    ]
    short = text.strip() if 0 < len(text.strip()) <= _LONGEST and "\n" not in text.strip() else ""
    return expression or short or ", ".join(classifiers) or "not stated"


def _field(found: Distribution, name: str) -> str:
    return (found.metadata.get_all(name) or [""])[0]


def page() -> str:
    """Markdown. Raises SystemExit where a package is not installed here."""
    packages = pinned("cpu")
    if missing := [one.name for one in packages if licence(one) is None]:
        raise SystemExit(f"Install what requirements-cpu.lock pins first: {', '.join(missing)}")
    rows = "".join(f"| {one.name} | {one.version} | {licence(one)} |\n" for one in packages)
    known = {one.name for one in packages}
    return _ABOUT + rows + _GPU.format(", ".join(one.name for one in pinned("gpu") if one.name not in known))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
