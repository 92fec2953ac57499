"""Rules of KServe's validating webhook, and what KServe silently corrects and a manifest should therefore say right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname, normpath
from typing import Any

from tests.kserve.quantity import BadQuantityError, quantity
from tests.kserve.revision import AUTOSCALING, FROM_FIELDS

Object = dict[str, Any]

DEPLOYMENT_MODE = "serving.kserve.io/deploymentMode"
AUTOSCALER_CLASS = "serving.kserve.io/autoscalerClass"
KNATIVE_CLASS = f"{AUTOSCALING}class"
# Besides model: the frameworks that KServe names itself. Two or more containers without one of them are one custom
# implementation.
FRAMEWORKS = (
    "model",
    "sklearn",
    "xgboost",
    "tensorflow",
    "pytorch",
    "triton",
    "onnx",
    "huggingface",
    "pmml",
    "lightgbm",
    "paddle",
)
BLOCKED_ENV = ("PYTHONPATH",)
STORAGE_TYPES = ("s3", "hdfs", "webhdfs")


def mode(isvc: Object) -> str | None:
    return _annotations(isvc).get(DEPLOYMENT_MODE)


def components(isvc: Object) -> Iterator[tuple[str, Object]]:
    for name in ("predictor", "transformer", "explainer"):
        if name in isvc["spec"]:
            yield name, isvc["spec"][name]


def container_lists(component: Object) -> Iterator[Object]:
    """Every container of a component that env rules look at."""
    yield from component.get("containers", [])
    yield from component.get("initContainers", [])
    yield from (component[name] for name in FRAMEWORKS if name in component)


def name_begins_with_a_letter_and_is_lower_case(isvc: Object) -> Iterator[str]:
    name = isvc["metadata"]["name"]
    if not re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield f"name {name!r}"


def deployment_mode_is_said_by_its_present_name(isvc: Object) -> Iterator[str]:
    # The default differs between installations, and the defaulter rewrites Serverless and RawDeployment.
    if mode(isvc) not in ("Knative", "Standard", "ModelMesh"):
        yield f"deploymentMode {mode(isvc)!r}"


def autoscaler_class_is_known(isvc: Object) -> Iterator[str]:
    value = _annotations(isvc).get(AUTOSCALER_CLASS, "hpa")
    if value not in ("hpa", "external", "keda", "none"):
        yield f"autoscalerClass {value!r}"


def scale_annotations_are_left_to_the_fields(isvc: Object) -> Iterator[str]:
    for name in ("min-scale", "max-scale"):
        if AUTOSCALING + name in _annotations(isvc):
            yield f"{name} is dropped; set {next(key for key, value in FROM_FIELDS.items() if value == name)}"


def a_component_has_one_implementation(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        yield from implementation_errors(name, component)


def implementation_errors(name: str, component: Object) -> Iterator[str]:
    frameworks = [item for item in FRAMEWORKS if item in component]
    if len(frameworks) > 1 or not (frameworks or component.get("containers")):
        yield f"{name} has {frameworks or 'no implementation'}"


def a_model_has_no_container_name(isvc: Object) -> Iterator[str]:
    for framework in FRAMEWORKS:
        if isvc["spec"]["predictor"].get(framework, {}).get("name"):
            yield f"predictor.{framework}.name"


def replicas_are_in_order(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        low, high = component.get("minReplicas", 1), component.get("maxReplicas", 0)
        if low < 0 or high < 0 or low > high > 0:
            yield f"{name}: minReplicas {low}, maxReplicas {high}"


def container_concurrency_is_not_negative(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        if component.get("containerConcurrency", 0) < 0:
            yield f"{name}: containerConcurrency {component['containerConcurrency']}"


def the_logger_is_complete(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        logger = component.get("logger")
        if logger is None:
            continue
        if logger.get("mode") not in ("all", "request", "response"):
            yield f"{name}: logger.mode {logger.get('mode')!r}"
        storage = logger.get("storage")
        if storage is not None and not all(storage.get(key) for key in ("path", "parameters", "key")):
            yield f"{name}: logger.storage needs path, parameters and key"


def blocked_env_is_not_set(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        for container in container_lists(component):
            for item in container.get("env", []):
                if item["name"] in BLOCKED_ENV:
                    yield f"{name}: env {item['name']}"


def a_custom_predictor_speaks_v1_or_v2(isvc: Object) -> Iterator[str]:
    for container in isvc["spec"]["predictor"].get("containers", [])[:1]:
        for item in container.get("env", []):
            if item["name"] == "PROTOCOL" and item.get("value") not in ("v1", "v2"):
                yield f"PROTOCOL {item.get('value')!r}"


def knative_mode_has_no_deployment_strategy(isvc: Object) -> Iterator[str]:
    for name, component in components(isvc):
        if mode(isvc) == "Knative" and "deploymentStrategy" in component:
            yield f"{name}.deploymentStrategy"


def knative_scales_by_concurrency_or_rps(isvc: Object) -> Iterator[str]:
    if mode(isvc) != "Knative" or _annotations(isvc).get(KNATIVE_CLASS, "").startswith("hpa."):
        return
    for name, component in components(isvc):
        metric, target = component.get("scaleMetric", "concurrency"), component.get("scaleTarget")
        if metric not in ("concurrency", "rps"):
            yield f"{name}: scaleMetric {metric}"
        if metric == "rps" and target is not None and target < 1:
            yield f"{name}: {target} requests per second"


def an_hpa_scales_by_cpu_or_memory(isvc: Object) -> Iterator[str]:
    knative = mode(isvc) == "Knative" and _annotations(isvc).get(KNATIVE_CLASS, "").startswith("hpa.")
    standard = mode(isvc) == "Standard" and _annotations(isvc).get(AUTOSCALER_CLASS) == "hpa"
    if not (knative or standard):
        return
    for name, component in components(isvc):
        metric, target = component.get("scaleMetric", "cpu"), component.get("scaleTarget", 80)
        if metric not in ("cpu", "memory"):
            yield f"{name}: scaleMetric {metric}"
        if not 1 <= target <= 100:
            yield f"{name}: scaleTarget {target} of {metric}"
        for item in component.get("autoScaling", {}).get("metrics", []):
            if item["type"] != "Resource" or "resource" not in item:
                yield f"{name}: autoScaling.metrics of type {item['type']}"


def keda_scales_by_complete_metrics(isvc: Object) -> Iterator[str]:
    if mode(isvc) != "Standard" or _annotations(isvc).get(AUTOSCALER_CLASS) != "keda":
        return
    for name, component in components(isvc):
        if "scaleMetric" in component:
            yield f"{name}.scaleMetric"
        for item in component.get("autoScaling", {}).get("metrics", []):
            yield from (f"{name}: {message}" for message in _keda_metric(item))


def _keda_metric(item: Object) -> Iterator[str]:
    source = item.get({"Resource": "resource", "External": "external", "PodMetric": "podmetric"}.get(item["type"], ""))
    if source is None:
        yield f"metric of type {item['type']} is not set"
    elif item["type"] == "Resource":
        yield from _keda_resource(source["name"], source.get("target", {}))
    else:
        if not source.get("metric", {}).get("query"):
            yield "the query is empty"
        if "value" not in source.get("target", {}):
            yield "target.value is missing"


def _keda_resource(name: str, target: Object) -> Iterator[str]:
    kind = target.get("type")
    if (name, kind) not in (("cpu", "Utilization"), ("memory", "Utilization"), ("memory", "AverageValue")):
        yield f"{name} with a target of type {kind}"
    elif kind == "Utilization" and not 1 <= target.get("averageUtilization", 0) <= 100:
        yield f"averageUtilization {target.get('averageUtilization')}"
    elif kind == "AverageValue":
        try:
            if quantity(target.get("averageValue")) < 2**20:
                yield "less than 1 MiB of memory"
        except BadQuantityError as error:
            yield str(error)


def weights_come_from_one_place(isvc: Object) -> Iterator[str]:
    predictor = isvc["spec"]["predictor"]
    if "storageUris" in predictor and "storageUri" in predictor.get("model", {}):
        yield "storageUri and storageUris"
    paths = []
    for item in predictor.get("storageUris", []):
        path = item.get("mountPath", "/mnt/models")
        if not path.startswith("/") or path == "/" or ".." in path.split("/"):
            yield f"mountPath {path!r}"
        if not item["uri"].startswith("pvc://"):
            paths.append(normpath(path))
    if len({dirname(path) for path in paths}) > 1 or (len(paths) > 1 and dirname(paths[0]) == "/"):
        yield f"mount paths {paths} share no parent below /"


def the_type_of_a_storage_is_known(isvc: Object) -> Iterator[str]:
    parameters = isvc["spec"]["predictor"].get("model", {}).get("storage", {}).get("parameters", {})
    if parameters.get("type", "s3") not in STORAGE_TYPES:
        yield f"storage type {parameters['type']!r}"


def a_transformer_downloads_nothing(isvc: Object) -> Iterator[str]:
    for container in isvc["spec"].get("transformer", {}).get("containers", []):
        if any(item["name"] == "STORAGE_URI" for item in container.get("env", [])):
            yield "STORAGE_URI on a transformer"


def the_mode_does_not_change(old: Object, new: Object) -> Iterator[str]:
    present = old.get("status", {}).get("deploymentMode")
    if present is not None and mode(new) != present:
        yield f"deploymentMode from {present} to {mode(new)}"


def a_renamed_predictor_has_new_weights(old: Object, new: Object) -> Iterator[str]:
    before, after = old["spec"]["predictor"], new["spec"]["predictor"]
    if before.get("name") != after.get("name") and _weights(before) == _weights(after):
        yield f"predictor.name from {before.get('name')!r} to {after.get('name')!r}"


def _weights(predictor: Object) -> str | None:
    for container in predictor.get("containers", [])[:1]:
        for item in container.get("env", []):
            if item["name"] == "STORAGE_URI":
                return item.get("value")
    return predictor.get("model", {}).get("storageUri")


def _annotations(isvc: Object) -> dict[str, str]:
    return isvc["metadata"].get("annotations", {})


RULES = (
    name_begins_with_a_letter_and_is_lower_case,
    deployment_mode_is_said_by_its_present_name,
    autoscaler_class_is_known,
    scale_annotations_are_left_to_the_fields,
    a_component_has_one_implementation,
    a_model_has_no_container_name,
    replicas_are_in_order,
    container_concurrency_is_not_negative,
    the_logger_is_complete,
    blocked_env_is_not_set,
    a_custom_predictor_speaks_v1_or_v2,
    knative_mode_has_no_deployment_strategy,
    knative_scales_by_concurrency_or_rps,
    an_hpa_scales_by_cpu_or_memory,
    keda_scales_by_complete_metrics,
    weights_come_from_one_place,
    the_type_of_a_storage_is_known,
    a_transformer_downloads_nothing,
)
UPDATE_RULES = (the_mode_does_not_change, a_renamed_predictor_has_new_weights)
