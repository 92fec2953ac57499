"""The cluster of these tests behaves as the real API server was seen to, also towards the real SDK's traps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kserve.api.kserve_client import KServeClient
from kserve.models import V1beta1InferenceService
from kubernetes.client import ApiException

from tests.kserve.rollout_command import wait_until
from tests.kserve.rollout_stage import FIRST, MODE, NAME, SECOND, Stage, manifest

ADDRESS = ("serving.kserve.io", "v1beta1", "tts", "inferenceservices", NAME)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as running:
        running.live(manifest(canaryTrafficPercent=10))
        yield running


@pytest.fixture
def sdk(stage: Stage) -> KServeClient:
    return KServeClient(config_file=str(stage.cluster.kubeconfig))


def _model(live: dict) -> V1beta1InferenceService:
    from kubernetes.client import V1ObjectMeta

    metadata = V1ObjectMeta(name=NAME, namespace="tts", annotations=live["metadata"]["annotations"])
    return V1beta1InferenceService(
        api_version=live["apiVersion"], kind=live["kind"], metadata=metadata, spec=live["spec"]
    )


def test_patching_none_with_the_sdk_clears_nothing(stage: Stage, sdk: KServeClient) -> None:
    from kserve.models import V1beta1InferenceServiceSpec, V1beta1PredictorSpec

    model = _model(stage.cluster.live())
    model.spec = V1beta1InferenceServiceSpec(predictor=V1beta1PredictorSpec(canary_traffic_percent=None))
    sdk.patch(NAME, model, namespace="tts")
    assert stage.percent == 10
    model.spec = V1beta1InferenceServiceSpec(predictor=V1beta1PredictorSpec(canary_traffic_percent=0))
    sdk.patch(NAME, model, namespace="tts")
    assert stage.percent == 0


def test_a_raw_null_clears_and_so_does_a_replace(stage: Stage, sdk: KServeClient) -> None:
    sdk.api_instance.patch_namespaced_custom_object(*ADDRESS, {"spec": {"predictor": {"canaryTrafficPercent": None}}})
    assert stage.percent is None
    sdk.api_instance.patch_namespaced_custom_object(*ADDRESS, {"spec": {"predictor": {"canaryTrafficPercent": 20}}})
    live = stage.cluster.live()
    del live["spec"]["predictor"]["canaryTrafficPercent"]
    sdk.replace(NAME, _model(live), namespace="tts")
    assert stage.percent is None


def test_a_stale_replace_is_a_conflict(stage: Stage, sdk: KServeClient) -> None:
    stale = stage.cluster.live()
    sdk.api_instance.patch_namespaced_custom_object(*ADDRESS, {"metadata": {"labels": {"team": "speech"}}})
    with pytest.raises(ApiException) as refused:
        sdk.api_instance.replace_namespaced_custom_object(*ADDRESS, stale)
    assert refused.value.status == 409


def test_the_generation_counts_changes_of_the_spec_alone(stage: Stage, sdk: KServeClient) -> None:
    def generation() -> int:
        return stage.cluster.live()["metadata"]["generation"]

    patch = sdk.api_instance.patch_namespaced_custom_object
    before = generation()
    patch(*ADDRESS, {"metadata": {"annotations": {"team": "speech"}}})
    patch(*ADDRESS, {"status": {"url": "http://elsewhere"}})
    assert generation() == before
    assert stage.cluster.live()["status"]["url"] == "http://cosyvoice.tts.example.com"
    patch(*ADDRESS, {"spec": {"predictor": {"canaryTrafficPercent": 20}}})
    assert generation() == before + 1


def test_only_a_change_of_the_template_makes_a_revision_and_annotations_are_part_of_it(
    stage: Stage, sdk: KServeClient
) -> None:
    patch = sdk.api_instance.patch_namespaced_custom_object
    patch(*ADDRESS, {"spec": {"predictor": {"canaryTrafficPercent": 20}}})
    wait_until(lambda: [line["percent"] for line in stage.cluster.status()["traffic"]] == [20, 80], "the traffic")
    assert stage.cluster.status()["latestCreatedRevision"] == FIRST
    patch(*ADDRESS, {"metadata": {"annotations": {"autoscaling.knative.dev/window": "60s"}}})
    wait_until(lambda: stage.cluster.status()["latestReadyRevision"] == SECOND, "the second revision")
    # The Knative Service saw three changes of this object's two generations.
    live = stage.cluster.live()
    assert live["status"]["observedGeneration"] > live["metadata"]["generation"]


def test_a_ready_of_before_stays_for_a_while(stage: Stage, sdk: KServeClient) -> None:
    container = {**stage.cluster.live()["spec"]["predictor"]["containers"][0], "image": "cosyserve:stuck"}
    sdk.api_instance.patch_namespaced_custom_object(*ADDRESS, {"spec": {"predictor": {"containers": [container]}}})
    # The SDK's own wait would return now.
    assert sdk.is_isvc_ready(NAME, namespace="tts")
    wait_until(lambda: not sdk.is_isvc_ready(NAME, namespace="tts"), "the controller to notice")
    assert stage.cluster.status()["latestReadyRevision"] == FIRST


def test_deletion_waits_for_the_finalizer(stage: Stage, sdk: KServeClient) -> None:
    sdk.delete(NAME, "tts")
    assert "deletionTimestamp" in stage.cluster.live()["metadata"]
    wait_until(lambda: not stage.cluster.exists(), "the finalizer")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"annotations": {MODE: "Standard"}}}, "deploymentMode cannot be changed"),
        ({"spec": {"canary": [{"predictor": {"name": "c"}, "trafficPercent": 5}]}}, "only supported in Standard"),
    ],
)
def test_the_webhook_refuses(stage: Stage, sdk: KServeClient, change: dict, message: str) -> None:
    with pytest.raises(ApiException, match=message):
        sdk.api_instance.patch_namespaced_custom_object(*ADDRESS, change)


def test_a_dry_run_is_admitted_and_not_kept(stage: Stage, sdk: KServeClient) -> None:
    document = stage.cluster.live()
    document["spec"]["predictor"]["containers"][0] = {"image": "cosyserve:2"}
    admitted = sdk.api_instance.replace_namespaced_custom_object(*ADDRESS, document, dry_run="All")
    assert admitted["spec"]["predictor"]["containers"][0]["name"] == "kserve-container"
    assert stage.image == "cosyserve:1"
