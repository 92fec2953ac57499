"""The manifests as the API server would receive them: bases and overlays rendered by kustomize, and the plain files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "kserve"
OVERLAYS = ("base", *(f"overlays/{folder.name}" for folder in sorted((MANIFESTS / "overlays").iterdir())))
PLAIN_FILES = tuple(str(path.relative_to(MANIFESTS)) for path in sorted(MANIFESTS.rglob("*.yaml")))
CLUSTER_WIDE = frozenset(["ClusterServingRuntime", "LocalModelCache", "LocalModelNodeGroup"])

Object = dict[str, Any]


@cache
def _rendered(overlay: str) -> str:
    command = ["kubectl", "kustomize", str(MANIFESTS / overlay)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, f"{overlay} does not render: {result.stderr}"
    return result.stdout


def render(overlay: str) -> list[Object]:
    """The objects of an overlay. Skips the test where kubectl is not installed."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the manifests cannot be rendered")
    return list(yaml.safe_load_all(_rendered(overlay)))


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [item for item in objects if item["kind"] == kind]


def services(overlay: str) -> list[Object]:
    """The InferenceServices of an overlay."""
    return of_kind(render(overlay), "InferenceService")


def runtimes(overlay: str) -> dict[str, Object]:
    """What a model format is served by: ClusterServingRuntimes of the overlay, by format name."""
    return {
        model_format["name"]: runtime
        for runtime in of_kind(render(overlay), "ClusterServingRuntime")
        for model_format in runtime["spec"]["supportedModelFormats"]
    }


def mode(isvc: Object) -> str:
    """`Knative` or `Standard`."""
    return isvc["metadata"]["annotations"]["serving.kserve.io/deploymentMode"]


def with_mode(wanted: str) -> tuple[str, ...]:
    """Overlays that hold an InferenceService of that mode; all of them where nothing can be rendered."""
    if shutil.which("kubectl") is None:
        return OVERLAYS
    return tuple(overlay for overlay in OVERLAYS if any(mode(isvc) == wanted for isvc in services(overlay)))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(`a.b.0.c`, value) of everything that is not a dict or a list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}")
    else:
        yield path, value
