"""Each rule of Knative's webhook accepts and rejects what it should, on the revision that KServe would make."""

from __future__ import annotations

import pytest

from tests.kserve import admission
from tests.kserve import knative_annotation_rules as scaling
from tests.kserve import knative_spec_rules as spec
from tests.kserve.cases import KNATIVE, MODEL, Change, annotation, changed
from tests.kserve.revision import revision_of

PREDICTOR = "spec/predictor"
CONTAINER = "spec/predictor/containers/0"
READINESS = f"{CONTAINER}/readinessProbe"
SECURITY = f"{CONTAINER}/securityContext"
TOLERATIONS = (f"{PREDICTOR}/tolerations", [{"operator": "Exists"}])
FIELD = (f"{CONTAINER}/env/-", {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
SECRET = (f"{PREDICTOR}/volumes/-", {"name": "keys", "secret": {"secretName": "keys"}})


def _scale(name: str, value: str) -> Change:
    return annotation(f"autoscaling.knative.dev/{name}", value)


def _claim() -> list[Change]:
    return [
        (f"{PREDICTOR}/volumes/0", {"name": "tmp", "persistentVolumeClaim": {"claimName": "a"}}),
    ]


HPA = _scale("class", "hpa.autoscaling.knative.dev")
LIMITS = [(f"{PREDICTOR}/minReplicas", 1), (f"{PREDICTOR}/maxReplicas", 3)]
# (rule, changes, enabled features)
ACCEPTED: list[tuple] = [
    (scaling.autoscaler_is_kpa_or_hpa, [HPA]),
    (scaling.autoscaler_is_kpa_or_hpa, [_scale("class", "keda.example.com")]),
    (scaling.min_scale_is_a_count, [(f"{PREDICTOR}/minReplicas", 0)]),
    (scaling.max_scale_is_a_count, [(f"{PREDICTOR}/maxReplicas", 0)]),
    (scaling.scales_are_in_order, [(f"{PREDICTOR}/minReplicas", 9), (f"{PREDICTOR}/maxReplicas", 0)]),
    (scaling.activation_scale_is_between_the_scales, [*LIMITS, _scale("activation-scale", "3")]),
    (scaling.initial_scale_is_one_or_more, [_scale("initial-scale", "1")]),
    (scaling.the_metric_is_one_of_the_class, [_scale("metric", "rps")]),
    (scaling.the_metric_is_one_of_the_class, [HPA, _scale("metric", "cpu")]),
    (scaling.target_is_positive, [(f"{PREDICTOR}/scaleTarget", 1)]),
    (scaling.target_is_positive, [_scale("target", "0.01")]),
    (scaling.target_utilization_is_a_percentage, [_scale("target-utilization-percentage", "70")]),
    (scaling.burst_capacity_is_a_count_or_minus_one, [_scale("target-burst-capacity", "-1")]),
    (scaling.burst_capacity_is_a_count_or_minus_one, [_scale("target-burst-capacity", "0")]),
    (scaling.panic_window_is_a_percentage, [_scale("panic-window-percentage", "1.0")]),
    (scaling.panic_threshold_is_over_the_target, [_scale("panic-threshold-percentage", "110")]),
    (scaling.window_is_six_seconds_to_an_hour, [_scale("window", "1m30s")]),
    (scaling.scale_down_delay_is_at_most_an_hour, [_scale("scale-down-delay", "0")]),
    (scaling.retention_is_at_most_an_hour, [_scale("scale-to-zero-pod-retention-period", "1h")]),
    (scaling.progress_deadline_is_whole_seconds, [annotation("serving.knative.dev/progress-deadline", "30m")]),
    (scaling.rollout_duration_is_whole_seconds, [annotation("serving.knative.dev/rollout-duration", "600s")]),
    (scaling.aggregation_is_linear_or_weighted, [_scale("metric-aggregation-algorithm", "weighted-exponential")]),
    (spec.timeout_is_within_the_clusters_limit, [(f"{PREDICTOR}/timeout", 600)]),
    (spec.concurrency_is_within_the_limit, [(f"{PREDICTOR}/containerConcurrency", 1000)]),
    (spec.pod_fields_are_open, [(f"{PREDICTOR}/serviceAccountName", "voice")]),
    (spec.pod_fields_are_open, [TOLERATIONS], "kubernetes.podspec-tolerations"),
    (spec.no_token_is_asked_for, [(f"{PREDICTOR}/automountServiceAccountToken", False)]),
    (spec.container_fields_are_open, [(f"{CONTAINER}/args", ["--port", "8080"])]),
    (spec.containers_have_names_of_their_own, [(f"{PREDICTOR}/containers/-", {"name": "side", "image": "a"})]),
    (spec.containers_have_images, [(f"{CONTAINER}/image", "registry.example.com/voice@sha256:0")]),
    (spec.reserved_env_is_not_set, [(f"{CONTAINER}/env/-", {"name": "GRPC_PORT", "value": "8081"})]),
    (spec.field_references_are_open, [FIELD], "kubernetes.podspec-fieldref"),
    (spec.there_is_one_port, [(f"{CONTAINER}/ports", [])]),
    (spec.the_port_is_one_for_http, [(f"{CONTAINER}/ports/0/name", "h2c")]),
    (spec.the_port_is_not_reserved, [(f"{CONTAINER}/ports/0/containerPort", 8112)]),
    (spec.a_probe_has_one_handler, [(f"{CONTAINER}/livenessProbe", {"exec": {"command": ["true"]}})]),
    (spec.a_probes_named_port_is_the_containers, [(f"{READINESS}/httpGet/port", "http1")]),
    (spec.readiness_is_complete, [(f"{READINESS}/timeoutSeconds", 3), (f"{READINESS}/failureThreshold", 3)]),
    (spec.readiness_is_complete, [(f"{READINESS}/periodSeconds", 0)]),
    (spec.volumes_and_mounts_match, []),
    (spec.volume_types_are_open, []),
    (spec.volume_types_are_open, _claim(), "kubernetes.podspec-persistent-volume-claim"),
    (spec.mount_paths_are_free, [(f"{CONTAINER}/volumeMounts/0/mountPath", "/dev/shm")]),
    (
        spec.other_peoples_volumes_are_read_only,
        [SECRET, (f"{CONTAINER}/volumeMounts/-", {"name": "keys", "mountPath": "/keys", "readOnly": True})],
    ),
    (spec.security_contexts_only_tighten, [(SECURITY, {"runAsUser": 1034, "capabilities": {"drop": ["ALL"]}})]),
    (spec.security_contexts_only_tighten, [(SECURITY, {"privileged": False})]),
]
REJECTED: list[tuple] = [
    (scaling.autoscaler_is_kpa_or_hpa, [_scale("class", "kpa2.autoscaling.knative.dev")]),
    (scaling.min_scale_is_a_count, [(f"{PREDICTOR}/minReplicas", -1)]),
    (scaling.max_scale_is_a_count, [(f"{PREDICTOR}/maxReplicas", 2**31)]),
    (scaling.scales_are_in_order, [(f"{PREDICTOR}/minReplicas", 9)]),
    (scaling.activation_scale_is_between_the_scales, [*LIMITS, _scale("activation-scale", "4")]),
    (scaling.activation_scale_is_between_the_scales, [_scale("activation-scale", "1")]),
    (scaling.initial_scale_is_one_or_more, [_scale("initial-scale", "0")]),
    (scaling.initial_scale_is_one_or_more, [_scale("initial-scale", "one")]),
    (scaling.the_metric_is_one_of_the_class, [_scale("metric", "cpu")]),
    (scaling.the_metric_is_one_of_the_class, [HPA, _scale("metric", "")]),
    (scaling.target_is_positive, [(f"{PREDICTOR}/scaleTarget", 0)]),
    (scaling.target_utilization_is_a_percentage, [_scale("target-utilization-percentage", "0.7")]),
    (scaling.target_utilization_is_a_percentage, [_scale("target-utilization-percentage", "70%")]),
    (scaling.burst_capacity_is_a_count_or_minus_one, [_scale("target-burst-capacity", "-2")]),
    (scaling.panic_window_is_a_percentage, [_scale("panic-window-percentage", "0.1")]),
    (scaling.panic_threshold_is_over_the_target, [_scale("panic-threshold-percentage", "100")]),
    (scaling.window_is_six_seconds_to_an_hour, [_scale("window", "5s")]),
    (scaling.window_is_six_seconds_to_an_hour, [_scale("window", "120")]),
    (scaling.scale_down_delay_is_at_most_an_hour, [_scale("scale-down-delay", "1500ms")]),
    (scaling.scale_down_delay_is_at_most_an_hour, [_scale("scale-down-delay", "61m")]),
    (scaling.retention_is_at_most_an_hour, [_scale("scale-to-zero-pod-retention-period", "2h")]),
    (scaling.progress_deadline_is_whole_seconds, [annotation("serving.knative.dev/progress-deadline", "1800")]),
    (scaling.rollout_duration_is_whole_seconds, [annotation("serving.knative.dev/rollout-duration", "-10s")]),
    (scaling.aggregation_is_linear_or_weighted, [_scale("metric-aggregation-algorithm", "median")]),
    (spec.timeout_is_within_the_clusters_limit, [(f"{PREDICTOR}/timeout", 601)]),
    (spec.concurrency_is_within_the_limit, [(f"{PREDICTOR}/containerConcurrency", 1001)]),
    (spec.pod_fields_are_open, [TOLERATIONS]),
    (spec.pod_fields_are_open, [TOLERATIONS], "kubernetes.podspec-nodeselector"),
    (spec.pod_fields_are_open, [(f"{PREDICTOR}/terminationGracePeriodSeconds", 600)]),
    (spec.no_token_is_asked_for, [(f"{PREDICTOR}/automountServiceAccountToken", True)]),
    (spec.container_fields_are_open, [(f"{CONTAINER}/lifecycle", {"preStop": {"sleep": {"seconds": 5}}})]),
    (spec.container_fields_are_open, [(f"{CONTAINER}/tty", True)]),
    (spec.containers_have_names_of_their_own, [(f"{CONTAINER}/name", "queue-proxy")]),
    (spec.containers_have_names_of_their_own, [(f"{PREDICTOR}/containers/-", {"name": "kserve-container"})]),
    (spec.containers_have_images, [(f"{CONTAINER}/image", ...)]),
    (spec.reserved_env_is_not_set, [(f"{CONTAINER}/env/-", {"name": "PORT", "value": "8080"})]),
    (spec.reserved_env_is_not_set, [(f"{CONTAINER}/env/-", {"name": "K_REVISION", "value": "a"})]),
    (spec.field_references_are_open, [FIELD]),
    (spec.there_is_one_port, [(f"{CONTAINER}/ports/-", {"name": "h2c", "containerPort": 8081})]),
    (spec.the_port_is_one_for_http, [(f"{CONTAINER}/ports/0/name", "grpc")]),
    (spec.the_port_is_one_for_http, [(f"{CONTAINER}/ports/0/protocol", "UDP")]),
    (spec.the_port_is_not_reserved, [(f"{CONTAINER}/ports/0/containerPort", 9090)]),
    (spec.a_probe_has_one_handler, [(f"{READINESS}/tcpSocket", {"port": 8080})]),
    (spec.a_probe_has_one_handler, [(f"{CONTAINER}/livenessProbe", {"periodSeconds": 5})]),
    (spec.a_probes_named_port_is_the_containers, [(f"{READINESS}/httpGet/port", "http")]),
    (spec.readiness_is_complete, [(f"{READINESS}/periodSeconds", 0), (f"{READINESS}/timeoutSeconds", 3)]),
    (spec.readiness_is_complete, [(f"{READINESS}/successThreshold", 0)]),
    (spec.volumes_and_mounts_match, [SECRET]),
    (spec.volumes_and_mounts_match, [(f"{PREDICTOR}/volumes", [])]),
    (spec.volume_types_are_open, [(f"{PREDICTOR}/volumes/0", {"name": "tmp", "hostPath": {"path": "/"}})]),
    (spec.volume_types_are_open, _claim()),
    (spec.mount_paths_are_free, [(f"{CONTAINER}/volumeMounts/0/mountPath", "/dev/")]),
    (spec.mount_paths_are_free, [(f"{CONTAINER}/volumeMounts/-", {"name": "tmp", "mountPath": "/tmp/"})]),
    (spec.mount_paths_are_free, [(f"{CONTAINER}/volumeMounts/0/mountPath", "tmp")]),
    (
        spec.other_peoples_volumes_are_read_only,
        [SECRET, (f"{CONTAINER}/volumeMounts/-", {"name": "keys", "mountPath": "/keys"})],
    ),
    (spec.security_contexts_only_tighten, [(SECURITY, {"privileged": True})]),
    (spec.security_contexts_only_tighten, [(SECURITY, {"seLinuxOptions": {}})]),
    (spec.security_contexts_only_tighten, [(SECURITY, {"capabilities": {"add": ["SYS_NICE"]}})]),
    (spec.security_contexts_only_tighten, [(SECURITY, {"runAsUser": -1})]),
]


def _named(cases):
    return [pytest.param(case[0], case[1], case[2:], id=f"{i}-{case[0].__name__}") for i, case in enumerate(cases)]


@pytest.mark.parametrize(("rule", "changes", "features"), _named(ACCEPTED))
def test_the_rule_accepts(rule, changes, features):
    assert list(rule(revision_of(changed(KNATIVE, *changes), {}, features))) == []


@pytest.mark.parametrize(("rule", "changes", "features"), _named(REJECTED))
def test_the_rule_rejects(rule, changes, features):
    assert list(rule(revision_of(changed(KNATIVE), {}, features))) == [], "the case must fail by its change alone"
    assert list(rule(revision_of(changed(KNATIVE, *changes), {}, features))) != []


def test_every_rule_is_tried_both_ways():
    assert {case[0] for case in ACCEPTED} == {case[0] for case in REJECTED} == set(admission.KNATIVE_RULES)


def test_a_model_is_judged_with_its_runtime():
    runtime = {
        "spec": {
            "annotations": {"autoscaling.knative.dev/window": "60s"},
            "containers": [{"name": "kserve-container", "image": "a", "env": [{"name": "HOME", "value": "/tmp"}]}],
            "tolerations": [{"operator": "Exists"}],
        }
    }
    isvc = changed(
        MODEL,
        annotation("serving.kserve.io/deploymentMode", "Knative"),
        annotation("autoscaling.knative.dev/window", "120s"),
        (f"{PREDICTOR}/model/env", [{"name": "HOME", "value": "/home"}]),
    )
    revision = revision_of(isvc, {"cosyvoice": runtime})
    assert revision.annotations["autoscaling.knative.dev/window"] == "120s"
    assert revision.pod["containers"][0]["env"] == [{"name": "HOME", "value": "/home"}]
    assert admission.violations(isvc, {"cosyvoice": runtime}) == [
        "pod_fields_are_open: tolerations needs kubernetes.podspec-tolerations"
    ]
