"""The names that the loaded model goes by, whatever protocol asks for it."""

from __future__ import annotations

import os

from runners.request import ModelInfo


def own_name(info: ModelInfo) -> str:
    """INFERENCE_SERVICE_NAME, which KServe sets, else the model folder's."""
    return os.environ.get("INFERENCE_SERVICE_NAME") or info.name


def upstream_name(info: ModelInfo) -> str:
    """That of upstream's own deployments."""
    return f"cosyvoice{info.version}"


def served_names(info: ModelInfo) -> list[str]:
    """Those that are listed."""
    return list(dict.fromkeys((own_name(info), upstream_name(info))))


def model_names(info: ModelInfo) -> list[str]:
    """All that are understood: the listed ones, the folder's, and upstream's with a hyphen."""
    return list(dict.fromkeys((*served_names(info), info.name, f"cosyvoice-{info.version}")))
