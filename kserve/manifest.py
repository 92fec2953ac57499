"""Manifests: reading one, laying it over what is live, and what of it reaches the pods."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from cluster import API_VERSION
from errors import RolloutError
from inference_service import InferenceService

# KServe copies every other annotation of the InferenceService into the revision's template, these two included:
# they may change only in a write that changes the template anyway, or they would make a revision of their own.
PREVIOUS = "cosyserve/previous"
APPLIED = "cosyserve/applied"
OWN = (PREVIOUS, APPLIED)
# What KServe keeps out of the template (its constants.go, and rollout-duration, which goes to the Knative Service).
KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
NOT_IN_TEMPLATE = (
    KUBECTL,
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
    "serving.knative.dev/rollout-duration",
    "networking.knative.dev/visibility",
)
MAX_RECORD_BYTES = 64 * 1024


Change = Callable[[InferenceService], dict]


@dataclass(frozen=True)
class Record:
    """What was live before a change, kept in an annotation so that any machine can roll back.

    Kept are spec, annotations and labels; not the ServingRuntime, Secret, ConfigMap or image tag that they refer
    to, which a rollback takes as they are by then. `restored`: these are back already, only the traffic is not,
    and `revision` is the one that they replaced.
    """

    revision: str
    spec: dict
    annotations: dict[str, str]
    labels: dict[str, str]
    restored: bool = False

    @classmethod
    def leading_back_from(cls, live: InferenceService) -> Record | None:
        """What a write over `live` has to keep: `live` if it is good, else the record of what was good before it."""
        if live.canary_under_way or not live.settled:
            return cls.read(live)
        spec = copy.deepcopy(live.spec)
        spec["predictor"].pop("canaryTrafficPercent", None)
        annotations = {key: value for key, value in live.annotations.items() if key not in (PREVIOUS, KUBECTL)}
        return cls(live.created_revision, spec, annotations, live.labels)

    def used_up(self, live: InferenceService) -> Record:
        """What stays of it when it is restored over `live`. It stays for good: taking it out makes a revision."""
        return Record(live.created_revision, self.spec, {}, {}, restored=True)

    def half_done(self, live: InferenceService) -> bool:
        """Whether a rollback was cut off between restoring the template and giving it the traffic."""
        spec = copy.deepcopy(live.spec)
        set_percent({"spec": spec}, None)
        return self.restored and live.percent == 0 and spec == self.spec

    @classmethod
    def read(cls, live: InferenceService) -> Record | None:
        """The record in the annotation of `live`, None where there is none."""
        text = live.annotations.get(PREVIOUS)
        if text is None:
            return None
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise _foreign(live, PREVIOUS) from None

    def text(self) -> str:
        """Compact JSON; RolloutError if it is too large for an annotation that every pod carries along."""
        text = json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)
        if len(text.encode()) > MAX_RECORD_BYTES:
            raise RolloutError(
                f"the live spec is {len(text.encode()):,} bytes as JSON, over the {MAX_RECORD_BYTES:,} that are "
                "kept for a rollback; move what is large out of it, into a ConfigMap or the image"
            )
        return text


def read_manifest(source: str) -> tuple[dict, list[str]]:
    """The one InferenceService in a stream of YAML documents, and what the others are, such as `PodMonitor cosyvoice`.

    `source` is a path, or - for standard input.
    """
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        documents = [item for item in yaml.safe_load_all(text) if item]
    except OSError as error:
        raise RolloutError(f"{source} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RolloutError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    found = [item for item in documents if isinstance(item, dict) and item.get("kind") == "InferenceService"]
    if len(found) != 1:
        raise RolloutError(
            f"{source} holds {len(found)} InferenceServices among {len(documents)} objects; one is needed"
        )
    manifest = found[0]
    if manifest.get("apiVersion") != API_VERSION:
        raise RolloutError(f"{source} is of {manifest.get('apiVersion')}, not of {API_VERSION}")
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise RolloutError(f"{source}: the InferenceService lacks metadata.name")
    if not isinstance(spec, dict) or not isinstance(spec.get("predictor"), dict):
        raise RolloutError(f"{source}: the InferenceService lacks spec.predictor")
    for field in ("name", "namespace"):
        if not isinstance(metadata.get(field), str | None):
            raise RolloutError(f"{source}: metadata.{field} is no string: put quotes around {metadata[field]}")
    for field in ("annotations", "labels"):
        if metadata.get(field) is not None and not _are_strings(metadata[field]):
            raise RolloutError(f"{source}: metadata.{field} is no mapping of strings to strings: quotes may be missing")
    return manifest, [_title(item) for item in documents if item is not manifest]


def _title(item: object) -> str:
    entries = item if isinstance(item, dict) else {}
    metadata = entries.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{entries.get('kind', 'something without a kind')} {name or 'without a name'}"


def _are_strings(entries: object) -> bool:
    return isinstance(entries, dict) and all(isinstance(text, str) for pair in entries.items() for text in pair)


def new_document(manifest: dict, namespace: str) -> dict:
    """`manifest` as the object to create."""
    document = copy.deepcopy(manifest)
    metadata = document["metadata"]
    metadata["namespace"] = namespace
    metadata["annotations"] = {**(metadata.get("annotations") or {}), APPLIED: _applied(manifest)}
    return document


def lay_over(live: InferenceService, manifest: dict) -> dict:
    """`live` with the manifest's spec, and with its annotations and labels among those that others set.

    What an earlier manifest set and this one does not is removed: the annotation `APPLIED` tells which those are.
    """
    document = live_document(live)
    document["spec"] = copy.deepcopy(manifest["spec"])
    before = _applied_before(live)
    for field in ("annotations", "labels"):
        wanted = manifest["metadata"].get(field) or {}
        kept = {key: value for key, value in document["metadata"].get(field, {}).items() if key not in before[field]}
        document["metadata"][field] = {**kept, **wanted}
    document["metadata"]["annotations"][APPLIED] = _applied(manifest)
    return document


def with_image(live: InferenceService, image: str) -> dict:
    """`live` with another image of the serving container."""
    document = live_document(live)
    set_image(document["spec"]["predictor"], image)
    return document


def set_image(predictor: dict, image: str) -> None:
    """Changes the one container named kserve-container, or the only one; else the image of `model`."""
    containers = predictor.get("containers") or []
    serving = [item for item in containers if item.get("name") == "kserve-container"] or containers
    if len(serving) == 1:
        serving[0]["image"] = image
    elif not containers and isinstance(predictor.get("model"), dict):
        predictor["model"]["image"] = image
    else:
        raise RolloutError("it is not clear which container's image is meant: none is named kserve-container; use -f")


def restore(live: InferenceService, record: Record) -> dict:
    """`live` as the record has it: spec, annotations and labels."""
    document = live_document(live)
    document["spec"] = copy.deepcopy(record.spec)
    kept = {key: value for key, value in live.annotations.items() if key == KUBECTL}
    document["metadata"]["annotations"] = {**record.annotations, **kept}
    document["metadata"]["labels"] = record.labels
    return document


def live_document(live: InferenceService) -> dict:
    """A copy of `live` to change and send back: with its resourceVersion, without its status."""
    document = {key: value for key, value in live.document.items() if key != "status"}
    return copy.deepcopy(document)


def set_percent(document: dict, percent: int | None) -> None:
    """canaryTrafficPercent; None clears it."""
    document["spec"]["predictor"].pop("canaryTrafficPercent", None)
    if percent is not None:
        document["spec"]["predictor"]["canaryTrafficPercent"] = percent


def keep(document: dict, record: Record | None) -> None:
    """Puts the record into the document, or takes it out. Only in a write that changes the template."""
    document["metadata"].setdefault("annotations", {}).pop(PREVIOUS, None)
    if record is not None:
        document["metadata"]["annotations"][PREVIOUS] = record.text()


def content(service: InferenceService) -> tuple[dict, dict, dict]:
    """All that a manifest decides: spec, annotations and labels, without this command's own."""
    annotations = {key: value for key, value in service.annotations.items() if key not in (*OWN, KUBECTL)}
    return service.spec, annotations, service.labels


def template(service: InferenceService) -> tuple[dict, dict, dict]:
    """What of it reaches the pods: a change of this makes a new revision, and nothing else does."""
    predictor = {key: value for key, value in service.spec["predictor"].items() if key != "canaryTrafficPercent"}
    annotations = {key: value for key, value in content(service)[1].items() if key not in NOT_IN_TEMPLATE}
    labels = {key: value for key, value in service.labels.items() if key not in NOT_IN_TEMPLATE}
    return predictor, annotations, labels


def _applied_before(live: InferenceService) -> dict[str, frozenset[str]]:
    """The keys that an earlier manifest set, by field."""
    try:
        keys = json.loads(live.annotations.get(APPLIED, '{"annotations": [], "labels": []}'))
        return {field: frozenset(keys[field]) for field in ("annotations", "labels")}
    except (ValueError, TypeError, KeyError):
        raise _foreign(live, APPLIED) from None


def _foreign(live: InferenceService, annotation: str) -> RolloutError:
    return RolloutError(f"the annotation {annotation} of {live.name} was not written by this command")


def _applied(manifest: dict) -> str:
    metadata = manifest["metadata"]
    keys = {field: sorted(metadata.get(field) or {}) for field in ("annotations", "labels")}
    return json.dumps(keys, separators=(",", ":"))
