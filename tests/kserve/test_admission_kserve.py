"""Each rule of KServe's webhook accepts what it should and rejects what it should."""

from __future__ import annotations

import pytest

from tests.kserve import admission
from tests.kserve import kserve_canary_rules as canary
from tests.kserve import kserve_rules as rules
from tests.kserve.cases import CANARY, KNATIVE, MODEL, STANDARD, Change, Object, annotation, changed

ENV = "spec/predictor/containers/0/env/-"
KEDA = "spec/predictor/autoScaling/metrics"
HPA = annotation("serving.kserve.io/autoscalerClass", "hpa")
KNATIVE_HPA = annotation("autoscaling.knative.dev/class", "hpa.autoscaling.knative.dev")
QUERY = {"metric": {"backend": "prometheus", "query": "sum(up)"}, "target": {"type": "Value", "value": "2"}}
POD_METRIC = {"metric": {"backend": "opentelemetry", "query": "up"}, "target": {"type": "Value", "value": "2"}}
LOGGER = {"mode": "request", "url": "http://log.example.com"}
SECOND = {"trafficPercent": 5, "predictor": {"name": "other", "model": {"modelFormat": {"name": "cosyvoice"}}}}


def _resource(name: str, **target: object) -> list[Object]:
    return [{"type": "Resource", "resource": {"name": name, "target": target}}]


ACCEPTED: list[tuple[object, Object, list[Change]]] = [
    (rules.name_begins_with_a_letter_and_is_lower_case, KNATIVE, [("metadata/name", "voice-2")]),
    (rules.deployment_mode_is_said_by_its_present_name, STANDARD, []),
    (rules.autoscaler_class_is_known, STANDARD, [annotation("serving.kserve.io/autoscalerClass", "external")]),
    (rules.scale_annotations_are_left_to_the_fields, KNATIVE, [annotation("autoscaling.knative.dev/target", "2")]),
    (rules.a_component_has_one_implementation, MODEL, []),
    # Two containers are one custom implementation.
    (rules.a_component_has_one_implementation, KNATIVE, [("spec/predictor/containers/-", {"name": "side"})]),
    (rules.a_model_has_no_container_name, MODEL, [("spec/predictor/model/image", "registry.example.com/voice:2")]),
    (rules.replicas_are_in_order, KNATIVE, [("spec/predictor/minReplicas", 5), ("spec/predictor/maxReplicas", 0)]),
    (rules.container_concurrency_is_not_negative, KNATIVE, [("spec/predictor/containerConcurrency", 0)]),
    (rules.the_logger_is_complete, KNATIVE, [("spec/predictor/logger", LOGGER)]),
    (rules.blocked_env_is_not_set, KNATIVE, [(ENV, {"name": "PATH", "value": "/bin"})]),
    (rules.a_custom_predictor_speaks_v1_or_v2, KNATIVE, [(ENV, {"name": "PROTOCOL", "value": "v1"})]),
    (rules.knative_mode_has_no_deployment_strategy, STANDARD, [("spec/predictor/deploymentStrategy/type", "Recreate")]),
    (rules.knative_scales_by_concurrency_or_rps, KNATIVE, [("spec/predictor/scaleMetric", "rps")]),
    (rules.knative_scales_by_concurrency_or_rps, KNATIVE, [KNATIVE_HPA, ("spec/predictor/scaleMetric", "cpu")]),
    (rules.an_hpa_scales_by_cpu_or_memory, STANDARD, [HPA, ("spec/predictor/scaleMetric", "memory")]),
    (rules.an_hpa_scales_by_cpu_or_memory, STANDARD, [HPA, (KEDA, _resource("cpu"))]),
    (rules.keda_scales_by_complete_metrics, STANDARD, [(KEDA, [{"type": "External", "external": QUERY}])]),
    (rules.keda_scales_by_complete_metrics, STANDARD, [(KEDA, [{"type": "PodMetric", "podmetric": POD_METRIC}])]),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("cpu", type="Utilization", averageUtilization=70))],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("memory", type="AverageValue", averageValue="1Mi"))],
    ),
    (
        rules.weights_come_from_one_place,
        STANDARD,
        [
            (
                "spec/predictor/storageUris",
                [
                    {"uri": "s3://a/b", "mountPath": "/mnt/models/a"},
                    {"uri": "s3://a/c", "mountPath": "/mnt/models/c"},
                    {"uri": "pvc://d/e", "mountPath": "/data"},
                ],
            )
        ],
    ),
    (rules.the_type_of_a_storage_is_known, MODEL, [("spec/predictor/model/storage/parameters", {"type": "s3"})]),
    (
        rules.a_transformer_downloads_nothing,
        KNATIVE,
        [("spec/transformer", {"containers": [{"name": "kserve-container"}]})],
    ),
    (canary.canary_traffic_percent_is_a_percentage, KNATIVE, [("spec/predictor/canaryTrafficPercent", 0)]),
    (canary.canary_traffic_percent_is_a_percentage, KNATIVE, [("spec/predictor/canaryTrafficPercent", 100)]),
    (canary.canaries_need_standard_mode, CANARY, []),
    (canary.canaries_need_a_stable_model, CANARY, []),
    (
        canary.canaries_need_a_stable_model,
        STANDARD,
        [("spec/canary", CANARY["spec"]["canary"]), (ENV, {"name": "STORAGE_URI", "value": "pvc://models/voice"})],
    ),
    (canary.canaries_have_names_of_their_own, CANARY, [("spec/canary/-", SECOND)]),
    (canary.canaries_share_at_most_all_traffic, CANARY, [("spec/canary/-", {**SECOND, "trafficPercent": 90})]),
    (canary.canaries_have_one_implementation, CANARY, []),
    (canary.canaries_do_not_scale, CANARY, []),
    (canary.canaries_are_not_larger_than_the_stable, CANARY, [("spec/canary/0/predictor/minReplicas", 2)]),
]
REJECTED: list[tuple[object, Object, list[Change]]] = [
    (rules.name_begins_with_a_letter_and_is_lower_case, KNATIVE, [("metadata/name", "2-voices")]),
    (rules.name_begins_with_a_letter_and_is_lower_case, KNATIVE, [("metadata/name", "voice-")]),
    (
        rules.deployment_mode_is_said_by_its_present_name,
        KNATIVE,
        [annotation("serving.kserve.io/deploymentMode", "Serverless")],
    ),
    (rules.deployment_mode_is_said_by_its_present_name, KNATIVE, [("metadata/annotations", {})]),
    (rules.autoscaler_class_is_known, STANDARD, [annotation("serving.kserve.io/autoscalerClass", "kpa")]),
    (rules.scale_annotations_are_left_to_the_fields, KNATIVE, [annotation("autoscaling.knative.dev/min-scale", "1")]),
    (rules.a_component_has_one_implementation, KNATIVE, [("spec/predictor/containers", [])]),
    (rules.a_component_has_one_implementation, MODEL, [("spec/predictor/triton", {})]),
    (rules.a_component_has_one_implementation, KNATIVE, [("spec/transformer", {"minReplicas": 1})]),
    (rules.a_model_has_no_container_name, MODEL, [("spec/predictor/model/name", "kserve-container")]),
    (rules.replicas_are_in_order, KNATIVE, [("spec/predictor/minReplicas", 3)]),
    (rules.replicas_are_in_order, KNATIVE, [("spec/predictor/minReplicas", -1)]),
    (rules.container_concurrency_is_not_negative, KNATIVE, [("spec/predictor/containerConcurrency", -1)]),
    (rules.the_logger_is_complete, KNATIVE, [("spec/predictor/logger", {**LOGGER, "mode": "some"})]),
    (rules.the_logger_is_complete, KNATIVE, [("spec/predictor/logger", {**LOGGER, "storage": {"path": "/a"}})]),
    (rules.blocked_env_is_not_set, KNATIVE, [(ENV, {"name": "PYTHONPATH", "value": "third_party"})]),
    (rules.blocked_env_is_not_set, MODEL, [("spec/predictor/model/env", [{"name": "PYTHONPATH", "value": "x"}])]),
    (
        rules.blocked_env_is_not_set,
        KNATIVE,
        [("spec/predictor/initContainers", [{"name": "i", "env": [{"name": "PYTHONPATH"}]}])],
    ),
    (rules.a_custom_predictor_speaks_v1_or_v2, KNATIVE, [(ENV, {"name": "PROTOCOL", "value": "grpc-v2"})]),
    (rules.knative_mode_has_no_deployment_strategy, KNATIVE, [("spec/predictor/deploymentStrategy/type", "Recreate")]),
    (rules.knative_scales_by_concurrency_or_rps, KNATIVE, [("spec/predictor/scaleMetric", "cpu")]),
    (
        rules.knative_scales_by_concurrency_or_rps,
        KNATIVE,
        [("spec/predictor/scaleMetric", "rps"), ("spec/predictor/scaleTarget", 0)],
    ),
    (rules.an_hpa_scales_by_cpu_or_memory, STANDARD, [HPA, ("spec/predictor/scaleMetric", "concurrency")]),
    (rules.an_hpa_scales_by_cpu_or_memory, STANDARD, [HPA, ("spec/predictor/scaleTarget", 0)]),
    (rules.an_hpa_scales_by_cpu_or_memory, KNATIVE, [KNATIVE_HPA, ("spec/predictor/scaleTarget", 101)]),
    (rules.an_hpa_scales_by_cpu_or_memory, STANDARD, [HPA, (KEDA, [{"type": "External", "external": QUERY}])]),
    (rules.keda_scales_by_complete_metrics, STANDARD, [("spec/predictor/scaleMetric", "concurrency")]),
    (rules.keda_scales_by_complete_metrics, STANDARD, [(KEDA, [{"type": "External"}])]),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, [{"type": "External", "external": {**QUERY, "metric": {}}}])],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, [{"type": "External", "external": {**QUERY, "target": {"type": "Value"}}}])],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("cpu", type="AverageValue", averageValue="1"))],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("cpu", type="Utilization", averageUtilization=0))],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("memory", type="AverageValue", averageValue="1Ki"))],
    ),
    (
        rules.keda_scales_by_complete_metrics,
        STANDARD,
        [(KEDA, _resource("memory", type="AverageValue", averageValue="1GB"))],
    ),
    (rules.weights_come_from_one_place, MODEL, [("spec/predictor/storageUris", [{"uri": "s3://a/b"}])]),
    (
        rules.weights_come_from_one_place,
        STANDARD,
        [("spec/predictor/storageUris", [{"uri": "s3://a/b", "mountPath": "/mnt/../etc"}])],
    ),
    (
        rules.weights_come_from_one_place,
        STANDARD,
        [
            (
                "spec/predictor/storageUris",
                [{"uri": "s3://a/b", "mountPath": "/mnt/b"}, {"uri": "s3://a/c", "mountPath": "/opt/c"}],
            )
        ],
    ),
    (rules.the_type_of_a_storage_is_known, MODEL, [("spec/predictor/model/storage/parameters", {"type": "nfs"})]),
    (
        rules.a_transformer_downloads_nothing,
        KNATIVE,
        [("spec/transformer", {"containers": [{"name": "t", "env": [{"name": "STORAGE_URI", "value": "s3://a"}]}]})],
    ),
    (canary.canary_traffic_percent_is_a_percentage, KNATIVE, [("spec/predictor/canaryTrafficPercent", 101)]),
    (canary.canary_traffic_percent_is_a_percentage, KNATIVE, [("spec/predictor/canaryTrafficPercent", -1)]),
    (canary.canaries_need_standard_mode, CANARY, [annotation("serving.kserve.io/deploymentMode", "RawDeployment")]),
    (canary.canaries_need_a_stable_model, STANDARD, [("spec/canary", CANARY["spec"]["canary"])]),
    (canary.canaries_have_names_of_their_own, CANARY, [("spec/canary/0/predictor/name", "")]),
    (canary.canaries_have_names_of_their_own, CANARY, [("spec/predictor/name", "next")]),
    (canary.canaries_have_names_of_their_own, CANARY, [("spec/canary/-", CANARY["spec"]["canary"][0])]),
    (canary.canaries_share_at_most_all_traffic, CANARY, [("spec/canary/0/trafficPercent", 101)]),
    (canary.canaries_share_at_most_all_traffic, CANARY, [("spec/canary/-", {**SECOND, "trafficPercent": 91})]),
    (canary.canaries_have_one_implementation, CANARY, [("spec/canary/0/predictor/model", ...)]),
    (canary.canaries_do_not_scale, CANARY, [("spec/canary/0/predictor/maxReplicas", 2)]),
    (canary.canaries_do_not_scale, CANARY, [("spec/canary/0/predictor/autoScaling", {})]),
    (canary.canaries_are_not_larger_than_the_stable, CANARY, [("spec/canary/0/predictor/minReplicas", 3)]),
]
UPDATES_ACCEPTED = [
    (rules.the_mode_does_not_change, [("status/deploymentMode", "Standard")], []),
    (rules.the_mode_does_not_change, [], [annotation("serving.kserve.io/deploymentMode", "Knative")]),
    (
        rules.a_renamed_predictor_has_new_weights,
        [],
        [("spec/predictor/name", "next"), ("spec/predictor/model/storageUri", "pvc://models/next")],
    ),
]
UPDATES_REJECTED = [
    (
        rules.the_mode_does_not_change,
        [("status/deploymentMode", "Standard")],
        [annotation("serving.kserve.io/deploymentMode", "Knative")],
    ),
    (rules.a_renamed_predictor_has_new_weights, [], [("spec/predictor/name", "next")]),
]


def _named(cases):
    return [pytest.param(*case, id=f"{index}-{case[0].__name__}") for index, case in enumerate(cases)]


@pytest.mark.parametrize(("rule", "item", "changes"), _named(ACCEPTED))
def test_the_rule_accepts(rule, item, changes):
    assert list(rule(changed(item, *changes))) == []


@pytest.mark.parametrize(("rule", "item", "changes"), _named(REJECTED))
def test_the_rule_rejects(rule, item, changes):
    assert list(rule(item)) == [], "the case must fail by its change alone"
    assert list(rule(changed(item, *changes))) != []


@pytest.mark.parametrize(("rule", "before", "after"), _named(UPDATES_ACCEPTED))
def test_the_update_rule_accepts(rule, before, after):
    assert list(rule(changed(MODEL, *before), changed(MODEL, *before, *after))) == []


@pytest.mark.parametrize(("rule", "before", "after"), _named(UPDATES_REJECTED))
def test_the_update_rule_rejects(rule, before, after):
    old = changed(MODEL, *before)
    assert list(rule(old, changed(old, *after))) != []
    assert admission.update_violations(old, changed(old, *after)) != []


def test_every_rule_is_tried_both_ways():
    for rules_, accepted, rejected in (
        (admission.KSERVE_RULES, ACCEPTED, REJECTED),
        (admission.UPDATE_RULES, UPDATES_ACCEPTED, UPDATES_REJECTED),
    ):
        assert {case[0] for case in accepted} == {case[0] for case in rejected} == set(rules_)


@pytest.mark.parametrize("item", [KNATIVE, STANDARD, MODEL, CANARY])
def test_the_plain_cases_are_admitted(item):
    assert admission.violations(item) == []
