"""InferenceServices that the webhooks accept, and how a case changes one."""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]
Change = tuple[str, Any]

KNATIVE: Object = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "voice", "annotations": {"serving.kserve.io/deploymentMode": "Knative"}},
    "spec": {
        "predictor": {
            "minReplicas": 0,
            "maxReplicas": 2,
            "containers": [
                {
                    "name": "kserve-container",
                    "image": "registry.example.com/voice:1",
                    "ports": [{"name": "http1", "containerPort": 8080}],
                    "env": [{"name": "PROTOCOL", "value": "v2"}],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        }
    },
}


def changed(item: Object, *changes: Change) -> Object:
    """A copy in which each `a/b/0/c` is set to its value; `...` takes the field away, `-` appends to a list. A slash
    inside a name is written `~`."""
    result = copy.deepcopy(item)
    for path, value in changes:
        *parents, last = (part.replace("~", "/") for part in path.split("/"))
        target: Any = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
        if value is ...:
            del target[last]
        elif isinstance(target, list):
            target.append(value) if last == "-" else target.__setitem__(int(last), value)
        else:
            target[last] = value
    return result


def annotation(name: str, value: str) -> Change:
    return f"metadata/annotations/{name.replace('/', '~')}", value


STANDARD = changed(
    KNATIVE,
    annotation("serving.kserve.io/deploymentMode", "Standard"),
    annotation("serving.kserve.io/autoscalerClass", "keda"),
)
MODEL = changed(
    STANDARD,
    ("spec/predictor/containers", ...),
    ("spec/predictor/volumes", ...),
    ("spec/predictor/model", {"modelFormat": {"name": "cosyvoice"}, "storageUri": "pvc://models/voice"}),
)
CANARY = changed(
    MODEL,
    ("spec/predictor/minReplicas", 2),
    (
        "spec/canary",
        [
            {
                "trafficPercent": 10,
                "predictor": {"name": "next", "minReplicas": 1, "model": {"modelFormat": {"name": "cosyvoice"}}},
            }
        ],
    ),
)
