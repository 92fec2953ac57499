"""The Knative revision that KServe makes of an InferenceService: as Knative's webhook sees it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

AUTOSCALING = "autoscaling.knative.dev/"
ROLLOUT_DURATION = "serving.knative.dev/rollout-duration"
# KServe writes these from the predictor's fields and drops them where a user writes them.
FROM_FIELDS = {
    "minReplicas": "min-scale",
    "maxReplicas": "max-scale",
    "scaleTarget": "target",
    "scaleMetric": "metric",
}
# Fields of a predictor that are KServe's own; what remains is the pod's.
_KSERVE_FIELDS = frozenset(
    [
        *FROM_FIELDS,
        "annotations",
        "autoScaling",
        "batcher",
        "canaryTrafficPercent",
        "containerConcurrency",
        "deploymentStrategy",
        "labels",
        "logger",
        "model",
        "name",
        "scaleMetricType",
        "storageUris",
        "timeout",
    ]
)
_MODEL_FIELDS = frozenset(
    ["modelFormat", "protocolVersion", "runtime", "runtimeVersion", "storage", "storageUri", "confidential"]
)


@dataclass(frozen=True)
class Revision:
    """`pod` is the pod spec without KServe's fields; `features` are the flags that the cluster has enabled."""

    annotations: dict[str, str]
    pod: dict[str, Any]
    timeout_seconds: int | None = None
    container_concurrency: int | None = None
    features: frozenset[str] = field(default_factory=frozenset)


def revision_of(
    isvc: dict[str, Any], runtimes: Mapping[str, dict[str, Any]], features: Collection[str] = ()
) -> Revision:
    """The revision of a predictor; `model` is filled in from the runtime of its format. Raises KeyError without one."""
    predictor = copy.deepcopy(isvc["spec"]["predictor"])
    annotations: dict[str, str] = {}
    pod = {key: value for key, value in predictor.items() if key not in _KSERVE_FIELDS}
    if "model" in predictor:
        runtime = copy.deepcopy(runtimes[predictor["model"]["modelFormat"]["name"]]["spec"])
        annotations.update(runtime.get("annotations", {}))
        pod["containers"] = [_merged(runtime["containers"][0], predictor["model"]), *runtime["containers"][1:]]
        pod["volumes"] = runtime.get("volumes", []) + pod.get("volumes", [])
        for name in ("nodeSelector", "tolerations", "affinity", "imagePullSecrets"):
            if name in runtime:
                pod.setdefault(name, runtime[name])
    annotations.update(isvc["metadata"].get("annotations", {}))
    annotations.update(predictor.get("annotations", {}))
    for key, name in FROM_FIELDS.items():
        if key in predictor:
            annotations[AUTOSCALING + name] = str(predictor[key])
    return Revision(
        annotations,
        pod,
        predictor.get("timeout"),
        predictor.get("containerConcurrency"),
        frozenset(features),
    )


def _merged(container: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    """The runtime's container with what the model says over it; env is merged by name."""
    over = {key: value for key, value in model.items() if key not in _MODEL_FIELDS}
    env = {item["name"]: item for item in container.get("env", []) + over.pop("env", [])}
    return {**container, **over, "env": list(env.values())}
