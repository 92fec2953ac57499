"""Golden arrays of the genuine classes: the full set when it is beside the repository, else the reduced copy.

`COSYSERVE_GOLDEN` names another place of the full set.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_REPOSITORY = Path(__file__).resolve().parent.parent
FULL = Path(os.environ.get("COSYSERVE_GOLDEN") or _REPOSITORY.parent / "shared" / "golden")
REDUCED = _REPOSITORY / "tests" / "data" / "golden"


@dataclass(frozen=True)
class Golden:
    """One tiny model folder in upstream's layout, with what the genuine classes computed from it."""

    dir: Path  # the complete model folder
    meta: dict[str, Any]  # texts, ids, random seeds, expected calls

    def array(self, name: str) -> np.ndarray:
        """The array `name`; skips the test, saying so, when only the full set has it."""
        arrays = _arrays(self.dir)
        if name not in arrays:
            pytest.skip(f"golden array {name} of {self.dir.name} is only in the full set (set COSYSERVE_GOLDEN)")
        return arrays[name]

    def json(self, name: str) -> Any:
        """A further json file of the folder, such as `silent_filter.json`; skips when it is not there."""
        path = self.dir / name
        if not path.is_file():
            pytest.skip(f"golden file {name} of {self.dir.name} is only in the full set (set COSYSERVE_GOLDEN)")
        return json.loads(path.read_text(encoding="utf-8"))


def golden(version: int) -> Golden:
    """The golden set of CosyVoice `version` (2 or 3)."""
    for root in (FULL, REDUCED):
        folder = root / f"cosyvoice{version}_tiny"
        if folder.is_dir():
            meta = json.loads((folder / "golden_meta.json").read_text(encoding="utf-8"))
            return Golden(folder, meta)
    pytest.skip(f"no golden set of CosyVoice {version}: neither {FULL} nor {REDUCED} has it")


@functools.cache
def _arrays(folder: Path) -> np.lib.npyio.NpzFile:
    return np.load(folder / "golden.npz")
