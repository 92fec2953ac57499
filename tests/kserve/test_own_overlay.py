"""The overlays that docs/deploy.md tells people to write render, are admitted, and do what the text says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kserve import admission
from tests.kserve.manifests import MANIFESTS, ROOT, Object, mode, of_kind

EXAMPLES = [
    text
    for text in re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/deploy.md").read_text(), re.MULTILINE | re.DOTALL)
    if "kind: Kustomization" in text
]


def _render(folder: Path, text: str) -> list[Object]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the manifests cannot be rendered")
    (folder / "kustomization.yaml").write_text(text.replace("../cosyserve/kserve", os.path.relpath(MANIFESTS, folder)))
    command = ["kubectl", "kustomize", str(folder)]
    return list(yaml.safe_load_all(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_overlay_of_ones_own_is_admitted_with_its_namespace_and_image(tmp_path: Path, text: str) -> None:
    objects = _render(tmp_path, text)
    assert {item["metadata"]["namespace"] for item in objects} == {"speech"}
    (isvc,) = of_kind(objects, "InferenceService")
    assert admission.violations(isvc) == []
    (container,) = isvc["spec"]["predictor"]["containers"]
    assert container["image"].startswith("registry.example.org/team/cosyserve")


def test_both_modes_have_an_example_and_labels_reach_the_pod_monitor(tmp_path: Path) -> None:
    knative, standard = (_render(tmp_path, text) for text in EXAMPLES)
    modes = [mode(isvc) for objects in (knative, standard) for isvc in of_kind(objects, "InferenceService")]
    assert modes == ["Knative", "Standard"]
    (monitor,) = of_kind(knative, "PodMonitor")
    assert "release" in monitor["metadata"]["labels"]


def test_standard_mode_on_cpu_asks_for_no_gpu_and_no_weights_and_scales_by_its_own_namespace(tmp_path: Path) -> None:
    (isvc,) = of_kind(_render(tmp_path, EXAMPLES[1]), "InferenceService")
    predictor = isvc["spec"]["predictor"]
    (container,) = predictor["containers"]
    assert not re.search("nvidia|STORAGE_URI|-gpu", yaml.safe_dump(isvc))
    assert {"PROTOCOL", "HOME", "BENTOML_HOME", "COSYSERVE_ALLOW_OPEN", "PORT", "GRPC_PORT"} == {
        item["name"] for item in container["env"]
    }
    for metric in predictor["autoScaling"]["metrics"]:
        source = metric["external"]["metric"]
        assert 'namespace="speech"' in source["query"]
        assert source["serverAddress"] == "http://prometheus.observability:9090"
