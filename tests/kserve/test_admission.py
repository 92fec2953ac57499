"""The webhooks would admit every InferenceService that is shipped, with the flags that its overlay names."""

from __future__ import annotations

import copy
import json

import pytest

from tests.kserve import admission
from tests.kserve.cases import changed
from tests.kserve.knative_spec_rules import FEATURES
from tests.kserve.manifests import MANIFESTS, OVERLAYS, mode, of_kind, render, runtimes, services, with_mode

NEEDED = {"overlays/gpu": {FEATURES["nodeSelector"], FEATURES["tolerations"]}}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_service_is_admitted(overlay):
    for isvc in services(overlay):
        assert admission.violations(isvc, runtimes(overlay), NEEDED.get(overlay, ())) == []


def test_the_gpu_overlay_needs_the_flags_that_it_names_and_no_others_need_any():
    (isvc,) = services("overlays/gpu")
    found = admission.violations(isvc)
    assert {message.rpartition(" needs ")[2] for message in found} == NEEDED["overlays/gpu"]
    text = (MANIFESTS / "overlays/gpu/nodes.yaml").read_text()
    assert all(flag in text for flag in NEEDED["overlays/gpu"])


def test_a_canary_step_of_the_shipped_service_is_admitted():
    (isvc,) = services("base")
    step = changed(isvc, ("spec/predictor/canaryTrafficPercent", 10), ("spec/predictor/containers/0/image", "a:2"))
    assert admission.violations(step) == admission.update_violations(isvc, step) == []


def test_the_warm_up_patches_leave_an_admitted_service():
    (isvc,) = services("base")
    jobs = of_kind(render("overlays/warm"), "CronJob")
    patches = [_patch(job) for job in jobs]
    assert sorted(patch["spec"]["predictor"]["minReplicas"] for patch in patches) == [0, 1]
    for patch in patches:
        patched = copy.deepcopy(isvc)
        patched["spec"]["predictor"].update(patch["spec"]["predictor"])
        assert admission.violations(patched) == admission.update_violations(isvc, patched) == []


def test_both_modes_are_shipped():
    assert "base" in with_mode("Knative")
    assert "overlays/standard" in with_mode("Standard")
    assert {mode(isvc) for overlay in OVERLAYS for isvc in services(overlay)} == {"Knative", "Standard"}


def _patch(job):
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (patch,) = [item.removeprefix("--patch=") for item in container["command"] if item.startswith("--patch=")]
    return json.loads(patch)
