"""The parts of the Prometheus operator's and KEDA's kinds that the manifests use, written down by hand.

Their CRDs are not at hand. At the levels used here an unknown field is an error, as it would be on a cluster.
"""

from __future__ import annotations

from typing import Any

STRING = {"type": "string", "minLength": 1}
DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|[smhd]))+$"}
STRINGS = {"type": "array", "items": STRING, "minItems": 1}
TEXTS = {"type": "object", "additionalProperties": STRING}
COUNT = {"type": "integer", "minimum": 0}


def _closed(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
    }


def _many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


def _kind(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata={"type": "object", "required": ["name"]},
        spec=spec,
    )


RELABELING = _closed(
    sourceLabels=STRINGS,
    separator=STRING,
    regex=STRING,
    modulus=COUNT,
    targetLabel=STRING,
    replacement=STRING,
    action={"enum": ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep"]},
)

POD_MONITOR = _kind(
    "monitoring.coreos.com/v1",
    "PodMonitor",
    _closed(
        ["selector", "podMetricsEndpoints"],
        selector=_closed(["matchLabels"], matchLabels=TEXTS),
        namespaceSelector=_closed(any={"type": "boolean"}, matchNames=STRINGS),
        podMetricsEndpoints=_many(
            _closed(
                ["port"],
                port=STRING,
                path={"type": "string", "pattern": "^/"},
                scheme={"enum": ["http", "https"]},
                interval=DURATION,
                scrapeTimeout=DURATION,
                relabelings=_many(RELABELING),
                metricRelabelings=_many(RELABELING),
            )
        ),
    ),
)

PROMETHEUS_RULE = _kind(
    "monitoring.coreos.com/v1",
    "PrometheusRule",
    _closed(
        ["groups"],
        groups=_many(
            _closed(
                ["name", "rules"],
                name=STRING,
                interval=DURATION,
                rules=_many(
                    _closed(
                        ["alert", "expr", "labels", "annotations"],
                        alert={"type": "string", "pattern": "^CosyServe[A-Z][A-Za-z]+$"},
                        expr=STRING,
                        labels=_closed(["severity"], severity={"enum": ["info", "warning", "critical"]}),
                        annotations=_closed(
                            ["summary", "description"], summary=STRING, description=STRING, runbook_url=STRING
                        ),
                        **{"for": DURATION, "keep_firing_for": DURATION},
                    )
                ),
            )
        ),
    ),
)


def _trigger(kind: str, *required: str, **metadata: Any) -> dict[str, Any]:
    return _closed(["type", "metadata"], type={"const": kind}, metadata=_closed([*required], **metadata))


SCALED_OBJECT = _kind(
    "keda.sh/v1alpha1",
    "ScaledObject",
    _closed(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=_closed(["name"], name=STRING, kind=STRING, apiVersion=STRING),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        idleReplicaCount=COUNT,
        pollingInterval=COUNT,
        cooldownPeriod=COUNT,
        advanced=_closed(
            horizontalPodAutoscalerConfig=_closed(
                behavior=_closed(
                    scaleDown=_closed(stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600})
                )
            )
        ),
        triggers=_many(
            {
                "oneOf": [
                    # KEDA reads trigger metadata as text: a bare number is rejected.
                    _trigger(
                        "cron",
                        *("timezone", "start", "end", "desiredReplicas"),
                        timezone=STRING,
                        start=STRING,
                        end=STRING,
                        desiredReplicas=STRING,
                    ),
                    _trigger(
                        "prometheus",
                        *("serverAddress", "query", "threshold"),
                        serverAddress={"type": "string", "pattern": "^https?://"},
                        query=STRING,
                        threshold={"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"},
                        activationThreshold=STRING,
                    ),
                ]
            }
        ),
    ),
)

SCHEMAS = {"PodMonitor": POD_MONITOR, "PrometheusRule": PROMETHEUS_RULE, "ScaledObject": SCALED_OBJECT}
