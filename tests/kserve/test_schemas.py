"""Every manifest is what its schema allows: custom resources, core kinds, and the operators' kinds."""

from __future__ import annotations

import copy
import json

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.kserve import crd_schema
from tests.kserve.manifests import CLUSTER_WIDE, MANIFESTS, OVERLAYS, PLAIN_FILES, Object, of_kind, render, services
from tests.kserve.operator_schemas import SCHEMAS

KUBERNETES = "1.33"
CUSTOM_GROUPS = ("kserve.io", "knative.dev")


def _is_custom(item: Object) -> bool:
    return item["apiVersion"].split("/")[0].endswith(CUSTOM_GROUPS)


def _kubernetes_accepts(item: Object) -> None:
    kubernetes_validate.validate(item, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_a_file_is_yaml_and_begins_with_its_job(name):
    text = (MANIFESTS / name).read_text()
    assert text.startswith("# ")
    assert all(document is not None for document in yaml.safe_load_all(text))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_renders_to_objects_with_names_in_the_right_scope(overlay):
    objects = render(overlay)
    identities = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(identities)) == len(identities) > 0
    for item in objects:
        assert ("namespace" not in item["metadata"]) == (item["kind"] in CLUSTER_WIDE), item["kind"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_custom_resources_match_their_crds(overlay):
    crd_schema.schema_folder()
    custom = [item for item in render(overlay) if _is_custom(item)]
    for item in custom:
        assert crd_schema.has_schema(item), f"no schema of {item['kind']} {item['apiVersion']}"
        assert crd_schema.errors(item) == []
    assert custom or overlay in ("overlays/monitoring", "overlays/warm")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "predictor", "minReplica"), 1),
        (("spec", "predictor", "timeout"), "600s"),
        (("spec", "predictor", "scaleMetric"), "queue"),
        (("spec", "predictor", "volumes", 0, "emptyDir", "size"), "1Gi"),
        (("spec", "canary"), [{"trafficPercent": 10}]),
        (("status", "url"), 1),
    ],
)
def test_the_schema_rejects_a_wrong_field(path, value):
    crd_schema.schema_folder()
    (isvc,) = services("base")
    assert crd_schema.errors(isvc) == []
    assert crd_schema.errors(_changed(isvc, path, value)) != []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_core_kinds_pass_strict_validation(overlay):
    core = [item for item in render(overlay) if not _is_custom(item) and item["kind"] not in SCHEMAS]
    for item in core:
        _kubernetes_accepts(item)
    assert core or overlay == "overlays/local-cache/cluster"


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("NetworkPolicy", ("spec", "podSelectors"), {}),
        ("NetworkPolicy", ("spec", "ingress", 0, "ports", 0, "protocol"), 6),
        ("PodDisruptionBudget", ("spec", "maxUnavailable"), [1]),
        ("ServiceAccount", ("automountServiceAccountToken",), "false"),
    ],
)
def test_strict_validation_rejects_a_wrong_field(kind, path, value):
    (item,) = of_kind(render("base"), kind)
    _kubernetes_accepts(item)
    with pytest.raises(kubernetes_validate.ValidationError):
        _kubernetes_accepts(_changed(item, path, value))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_operators_kinds_match_what_is_known_of_them(overlay):
    for item in render(overlay):
        if item["kind"] in SCHEMAS:
            found = Draft202012Validator(SCHEMAS[item["kind"]]).iter_errors(item)
            assert [f"{error.json_path}: {error.message}" for error in found] == []


@pytest.mark.parametrize(
    ("overlay", "kind", "path", "value"),
    [
        ("base", "PodMonitor", ("spec", "podMetricsEndpoints", 0, "targetport"), 8080),
        ("base", "PodMonitor", ("spec", "podMetricsEndpoints", 0, "interval"), 15),
        ("base", "PodMonitor", ("spec", "podMetricsEndpoints", 0, "relabelings", 0, "source_labels"), ["a"]),
        ("overlays/monitoring", "PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "up"),
        ("overlays/monitoring", "PrometheusRule", ("spec", "groups", 0, "rules", 0, "labels"), {}),
        ("overlays/standard-warm", "ScaledObject", ("spec", "triggers", 1, "metadata", "threshold"), 2),
        ("overlays/standard-warm", "ScaledObject", ("spec", "triggers", 0, "type"), "crons"),
        ("overlays/standard-warm", "ScaledObject", ("spec", "minReplicas"), 1),
    ],
)
def test_the_operators_schemas_reject_a_wrong_field(overlay, kind, path, value):
    (item,) = of_kind(render(overlay), kind)
    assert list(Draft202012Validator(SCHEMAS[kind]).iter_errors(_changed(item, path, value)))


def test_a_structural_schema_is_closed_at_every_level():
    schema = crd_schema.closed(
        {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "open": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": True},
                "quantity": {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+(Gi)?$"},
                "optional": {"type": "string", "nullable": True},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        }
    )
    validator = Draft202012Validator(schema)
    good = {"list": [{"a": "x"}], "open": {"any": 1}, "quantity": 3, "optional": None, "map": {"k": 1}}
    assert validator.is_valid(good)
    for bad in (
        {"unknown": 1},
        {"list": [{"b": "x"}]},
        {"quantity": "3 Gi"},
        {"optional": 1},
        {"map": {"k": "v"}},
    ):
        assert not validator.is_valid({**good, **bad}), json.dumps(bad)


def _changed(item: Object, path: tuple, value: object) -> Object:
    changed = copy.deepcopy(item)
    *parents, last = path
    target = changed
    for key in parents:
        target = target.setdefault(key, {}) if isinstance(target, dict) else target[key]
    target[last] = value
    return changed
