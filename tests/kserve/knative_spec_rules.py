"""Rules of Knative's webhook for a revision's spec: the part of a pod that it takes, and the flags that open more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from posixpath import normpath
from typing import Any

from tests.kserve.revision import Revision

Object = dict[str, Any]

MAX_TIMEOUT_SECONDS = 600  # max-revision-timeout-seconds of config-defaults, as installed
MAX_CONCURRENCY = 1000
POD_FIELDS = frozenset(
    [
        "serviceAccountName",
        "containers",
        "volumes",
        "imagePullSecrets",
        "enableServiceLinks",
        "automountServiceAccountToken",
    ]
)
# Each opens one field of the pod; all are off as installed.
FEATURES = {
    "affinity": "kubernetes.podspec-affinity",
    "topologySpreadConstraints": "kubernetes.podspec-topologyspreadconstraints",
    "hostAliases": "kubernetes.podspec-hostaliases",
    "nodeSelector": "kubernetes.podspec-nodeselector",
    "runtimeClassName": "kubernetes.podspec-runtimeclassname",
    "tolerations": "kubernetes.podspec-tolerations",
    "securityContext": "kubernetes.podspec-securitycontext",
    "shareProcessNamespace": "kubernetes.podspec-shareprocessnamespace",
    "priorityClassName": "kubernetes.podspec-priorityclassname",
    "schedulerName": "kubernetes.podspec-schedulername",
    "initContainers": "kubernetes.podspec-init-containers",
    "dnsPolicy": "kubernetes.podspec-dnspolicy",
    "dnsConfig": "kubernetes.podspec-dnsconfig",
    "hostIPC": "kubernetes.podspec-hostipc",
    "hostPID": "kubernetes.podspec-hostpid",
    "hostNetwork": "kubernetes.podspec-hostnetwork",
}
ADD_CAPABILITIES = "kubernetes.containerspec-addcapabilities"
CONTAINER_FIELDS = frozenset(
    [
        "name",
        "args",
        "command",
        "env",
        "workingDir",
        "envFrom",
        "image",
        "imagePullPolicy",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resources",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
    ]
)
SECURITY_FIELDS = frozenset(
    [
        "capabilities",
        "readOnlyRootFilesystem",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "allowPrivilegeEscalation",
        "seccompProfile",
        "privileged",
    ]
)
RESERVED_CONTAINERS = ("queue-proxy",)
RESERVED_ENV = ("PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION")
RESERVED_PORTS = (8008, 8012, 8013, 8022, 9090, 9091)
RESERVED_PATHS = ("/", "/dev", "/dev/log")
VOLUMES = frozenset(["emptyDir", "secret", "configMap", "projected"])
VOLUME_FEATURES = {
    "persistentVolumeClaim": "kubernetes.podspec-persistent-volume-claim",
    "hostPath": "kubernetes.podspec-volumes-hostpath",
    "csi": "kubernetes.podspec-volumes-csi",
    "ephemeral": "kubernetes.podspec-volumes-ephemeral",
    "image": "kubernetes.podspec-volumes-image",
}
WRITABLE = ("emptyDir", "persistentVolumeClaim", "ephemeral")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")


def timeout_is_within_the_clusters_limit(revision: Revision) -> Iterator[str]:
    if not 0 <= (revision.timeout_seconds or 0) <= MAX_TIMEOUT_SECONDS:
        yield f"timeout {revision.timeout_seconds}"


def concurrency_is_within_the_limit(revision: Revision) -> Iterator[str]:
    if not 0 <= (revision.container_concurrency or 0) <= MAX_CONCURRENCY:
        yield f"containerConcurrency {revision.container_concurrency}"


def pod_fields_are_open(revision: Revision) -> Iterator[str]:
    for field in revision.pod:
        if field not in POD_FIELDS and FEATURES.get(field) not in revision.features:
            yield f"{field} needs {FEATURES.get(field, 'what Knative never allows')}"


def no_token_is_asked_for(revision: Revision) -> Iterator[str]:
    if revision.pod.get("automountServiceAccountToken") is True:
        yield "automountServiceAccountToken may only be false"


def container_fields_are_open(revision: Revision) -> Iterator[str]:
    for container in _containers(revision):
        for field in sorted(container.keys() - CONTAINER_FIELDS):
            yield f"{container['name']}.{field}"


def containers_have_names_of_their_own(revision: Revision) -> Iterator[str]:
    for name, times in Counter(container["name"] for container in _containers(revision)).items():
        if times > 1 or name in RESERVED_CONTAINERS:
            yield f"container name {name!r}"


def containers_have_images(revision: Revision) -> Iterator[str]:
    for container in _containers(revision):
        if not container.get("image"):
            yield f"{container['name']} has no image"


def reserved_env_is_not_set(revision: Revision) -> Iterator[str]:
    for container in _containers(revision):
        for item in container.get("env", []):
            if item["name"] in RESERVED_ENV:
                yield f"env {item['name']}"


def field_references_are_open(revision: Revision) -> Iterator[str]:
    feature = "kubernetes.podspec-fieldref"
    for container in _containers(revision):
        for item in container.get("env", []):
            if {"fieldRef", "resourceFieldRef"} & item.get("valueFrom", {}).keys() and feature not in revision.features:
                yield f"env {item['name']} needs {feature}"


def there_is_one_port(revision: Revision) -> Iterator[str]:
    ports = sum(len(container.get("ports", [])) for container in _containers(revision))
    if ports > 1 or (ports == 0 and len(_containers(revision)) > 1):
        yield f"{ports} ports"


def the_port_is_one_for_http(revision: Revision) -> Iterator[str]:
    for port in _ports(revision):
        if port.get("name", "") not in ("", "http1", "h2c"):
            yield f"port name {port['name']!r}"
        if port.get("protocol", "TCP") != "TCP":
            yield f"protocol {port['protocol']}"


def the_port_is_not_reserved(revision: Revision) -> Iterator[str]:
    for port in _ports(revision):
        if port["containerPort"] in RESERVED_PORTS or not 0 <= port["containerPort"] <= 65535:
            yield f"containerPort {port['containerPort']}"


def a_probe_has_one_handler(revision: Revision) -> Iterator[str]:
    for name, probe in _probes(revision):
        if len([handler for handler in HANDLERS if handler in probe]) != 1:
            yield f"{name} has {sorted(probe)}"


def a_probes_named_port_is_the_containers(revision: Revision) -> Iterator[str]:
    names = [port.get("name", "http") for port in _ports(revision)] or ["http"]
    for name, probe in _probes(revision):
        for handler in ("httpGet", "tcpSocket"):
            port = probe.get(handler, {}).get("port")
            if isinstance(port, str) and port not in names:
                yield f"{name} asks port {port!r}"


def readiness_is_complete(revision: Revision) -> Iterator[str]:
    for name, probe in _probes(revision):
        if name != "readinessProbe":
            continue
        # The webhook's defaults come first: 1 success; where a period is set, 1 s and 3 failures.
        if probe.get("successThreshold", 1) < 1 or probe.get("periodSeconds", 0) < 0:
            yield "successThreshold or periodSeconds"
        if probe.get("periodSeconds", 0) == 0 and (probe.get("timeoutSeconds") or probe.get("failureThreshold")):
            yield "timeoutSeconds and failureThreshold need a periodSeconds"
        elif min(probe.get("timeoutSeconds", 1), probe.get("failureThreshold", 3)) < 1 and probe.get("periodSeconds"):
            yield "timeoutSeconds or failureThreshold below 1"


def volumes_and_mounts_match(revision: Revision) -> Iterator[str]:
    mounted = {mount["name"] for container in _containers(revision) for mount in container.get("volumeMounts", [])}
    volumes = {volume["name"] for volume in revision.pod.get("volumes", [])}
    for name in sorted(mounted ^ volumes):
        yield f"volume {name!r} is {'mounted but not there' if name in mounted else 'not mounted'}"


def volume_types_are_open(revision: Revision) -> Iterator[str]:
    for volume in revision.pod.get("volumes", []):
        for kind in sorted(volume.keys() - {"name"} - VOLUMES):
            if VOLUME_FEATURES.get(kind) not in revision.features:
                yield f"volume {volume['name']} of type {kind}"


def mount_paths_are_free(revision: Revision) -> Iterator[str]:
    for container in _containers(revision):
        paths = [normpath(mount["mountPath"]) for mount in container.get("volumeMounts", [])]
        for path, times in Counter(paths).items():
            if times > 1 or path in RESERVED_PATHS or not path.startswith("/"):
                yield f"mountPath {path!r}"


def other_peoples_volumes_are_read_only(revision: Revision) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in revision.pod.get("volumes", [])}
    for container in _containers(revision):
        for mount in container.get("volumeMounts", []):
            writable = any(kind in volumes.get(mount["name"], {}) for kind in WRITABLE)
            if mount["name"] in volumes and not writable and not mount.get("readOnly"):
                yield f"mount of {mount['name']!r} must be readOnly"


def security_contexts_only_tighten(revision: Revision) -> Iterator[str]:
    for container in _containers(revision):
        context = container.get("securityContext", {})
        for field in sorted(context.keys() - SECURITY_FIELDS):
            yield f"securityContext.{field}"
        if context.get("privileged"):
            yield "privileged"
        if context.get("capabilities", {}).get("add") and ADD_CAPABILITIES not in revision.features:
            yield "capabilities.add"
        if any(not 0 <= context.get(field, 0) < 2**31 for field in ("runAsUser", "runAsGroup")):
            yield "runAsUser or runAsGroup is no id"


def _containers(revision: Revision) -> list[Object]:
    return revision.pod.get("containers", [])


def _ports(revision: Revision) -> list[Object]:
    return [port for container in _containers(revision) for port in container.get("ports", [])]


def _probes(revision: Revision) -> Iterator[tuple[str, Object]]:
    for container in _containers(revision):
        for name in PROBES:
            if name in container:
                yield name, container[name]


RULES = (
    timeout_is_within_the_clusters_limit,
    concurrency_is_within_the_limit,
    pod_fields_are_open,
    no_token_is_asked_for,
    container_fields_are_open,
    containers_have_names_of_their_own,
    containers_have_images,
    reserved_env_is_not_set,
    field_references_are_open,
    there_is_one_port,
    the_port_is_one_for_http,
    the_port_is_not_reserved,
    a_probe_has_one_handler,
    a_probes_named_port_is_the_containers,
    readiness_is_complete,
    volumes_and_mounts_match,
    volume_types_are_open,
    mount_paths_are_free,
    other_peoples_volumes_are_read_only,
    security_contexts_only_tighten,
)
