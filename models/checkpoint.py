"""Read upstream's state dicts, memory-mapped, and copy them into modules strictly: wholly or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path

import torch
from torch import Tensor, nn

from models.errors import ModelError

_STRAY_KEYS = ("epoch", "step")  # left behind by training runs whose checkpoints were not averaged
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_WEIGHT_NORM_SPELLINGS = (
    (".weight_g", ".weight_v"),
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
)
_NAMED_KEYS = 5  # how many keys of a kind an error message names


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a `.pt` state dict by name, memory-mapped: bytes are read when a tensor is first used.

    What is kept must be copied: a file that is cut short underneath a mapping kills the process that looks at it.
    A `generator.` in a key (a GAN training checkpoint) and stray `epoch` / `step` entries are dropped.
    Raises ModelError: model_file_missing, checkpoint_unreadable.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError("model_file_missing", f"{path} is missing")
    try:
        # Files of torch < 1.6 are no zip archives and cannot be mapped.
        loaded = torch.load(path, weights_only=True, mmap=zipfile.is_zipfile(path), map_location="cpu")
    except Exception as error:  # whatever a damaged file makes of the unpickler
        raise ModelError("checkpoint_unreadable", f"{path} cannot be read: {why_unreadable(path, error)}") from error
    if not isinstance(loaded, dict):
        raise ModelError("checkpoint_unreadable", f"{path} holds a {type(loaded).__name__}, not a state dict")
    state = {str(key).replace("generator.", ""): value for key, value in loaded.items() if key not in _STRAY_KEYS}
    if strange := [key for key, value in state.items() if not isinstance(value, Tensor)]:
        raise ModelError("checkpoint_unreadable", f"{path} holds entries that are no tensors: {_names(strange)}")
    return state


def fold_weight_norm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with each weight-normalised pair (g, v), in either spelling, replaced by its weight.

    weight = v * g / ||v||, float32, the norm over all dimensions but the first (Salimans and Kingma 2016).
    An incomplete or misshapen pair is left as it is: strict loading then names it.
    """
    folded = dict(state)
    for g_suffix, v_suffix in _WEIGHT_NORM_SPELLINGS:
        for g_key in [key for key in folded if key.endswith(g_suffix)]:
            prefix = g_key[: -len(g_suffix)]
            v_key = prefix + v_suffix
            if v_key not in folded:
                continue
            g, v = folded[g_key], folded[v_key]
            if v.dim() < 2 or g.shape != v.shape[:1] + (1,) * (v.dim() - 1):
                continue
            del folded[g_key], folded[v_key]
            g, v = g.float(), v.float()
            norm = torch.linalg.vector_norm(v, dim=tuple(range(1, v.dim())), keepdim=True)
            folded[prefix + ".weight"] = v * (g / norm)
    return folded


def load_strict(
    module: nn.Module, state: dict[str, Tensor], path: str | Path, *, dtype: torch.dtype | None = None
) -> None:
    """Put `state` into `module` (built on the meta device): with `dtype` copied, floats to that type; else as it is.

    Afterwards the module is in eval mode and its parameters need no gradient.
    Raises one ModelError that names the file and every kind of misfit (the code is of the first of them):
    checkpoint_missing_key, checkpoint_extra_key, checkpoint_shape, checkpoint_dtype.
    """
    expected = module.state_dict()
    common = [key for key in expected if key in state]
    problems = {
        "checkpoint_missing_key": [key for key in expected if key not in state],
        "checkpoint_extra_key": [key for key in state if key not in expected],
        "checkpoint_shape": [
            f"{key} is {list(state[key].shape)} instead of {list(expected[key].shape)}"
            for key in common
            if state[key].shape != expected[key].shape
        ],
        "checkpoint_dtype": [
            f"{key} is {_dtype(state[key])}" for key in common if not _dtype_fits(state[key], expected[key])
        ],
    }
    found = {code: items for code, items in problems.items() if items}
    if found:
        details = "; ".join(f"{_TITLES[code]}: {_names(items)}" for code, items in found.items())
        raise ModelError(next(iter(found)), f"{path} does not fit the model: {details}")
    if dtype is not None:
        state = {
            key: value.to(dtype if value.is_floating_point() else value.dtype, copy=True)
            for key, value in state.items()
        }
    module.load_state_dict(state, strict=True, assign=True)
    module.requires_grad_(False).eval()


_TITLES = {
    "checkpoint_missing_key": "missing keys",
    "checkpoint_extra_key": "unknown keys",
    "checkpoint_shape": "wrong shapes",
    "checkpoint_dtype": "wrong data types",
}


def _dtype_fits(value: Tensor, expected: Tensor) -> bool:
    return value.dtype in _FLOATS if expected.is_floating_point() else value.dtype == expected.dtype


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _names(items: list[str]) -> str:
    shown = ", ".join(items[:_NAMED_KEYS])
    return shown if len(items) <= _NAMED_KEYS else f"{shown} and {len(items) - _NAMED_KEYS} more"


def why_unreadable(path: Path, error: Exception) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as denied:
        return denied.strerror or str(denied)
    if not head:
        return "it is empty"
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
    detail = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return f"it is damaged, incomplete or no state dict ({detail})"
