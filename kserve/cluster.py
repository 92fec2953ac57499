"""One InferenceService in the Kubernetes API, through the KServe SDK: bounded calls, errors as sentences."""

from __future__ import annotations

import copy
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
import yaml
from kserve.api.kserve_client import KServeClient
from kserve.constants import constants
from kserve.models import V1beta1InferenceService
from kserve.utils.utils import get_default_target_namespace
from kubernetes import client, config
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from errors import ConflictError, RolloutError, UnavailableError
from inference_service import InferenceService

if TYPE_CHECKING:
    from waiting import Patience, Progress

CONNECT_SECONDS, READ_SECONDS = 5.0, 30.0
CONFLICT_ATTEMPTS = 20
API_VERSION = f"{constants.KSERVE_GROUP}/{constants.KSERVE_V1BETA1_VERSION}"
KUBECONFIG_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}
PLURAL = constants.KSERVE_PLURAL_INFERENCESERVICE


class _BoundedClient(client.ApiClient):
    """The SDK passes no timeout on, and without one a dead connection is waited for forever."""

    def request(self, *args: Any, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or (CONNECT_SECONDS, READ_SECONDS)
        return super().request(*args, **options)


class Cluster:
    """Reads and writes the InferenceService `name`. Every method raises RolloutError with a sentence."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        namespace: str | None,
        name: str,
        patience: Patience,
        progress: Progress,
    ) -> None:
        # urllib3 announces each of its own retries on stderr; here an error is told once, by us.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        try:
            _check_kubeconfig(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION)
            self._sdk = KServeClient(config_file=kubeconfig, context=context)
            self.namespace = namespace or _namespace_of(kubeconfig, context)
        except (config.ConfigException, OSError) as error:
            raise RolloutError(f"the kubeconfig is of no use: {_one_line(str(error))}") from None
        self._sdk.api_instance = client.CustomObjectsApi(_BoundedClient())
        self.name = name
        self._patience, self._progress = patience, progress
        self._answered = False

    def get(self) -> InferenceService | None:
        """The live object, or None where there is none. RolloutError too where KServe is not installed."""
        try:
            return InferenceService(self._call(self._sdk.get, self.name, namespace=self.namespace))
        except _AbsentError:
            return None

    def require(self) -> InferenceService:
        """As `get`, but patient with an API that is away; a RolloutError where there is none."""
        service = self.retry(self.get)
        if service is None:
            raise RolloutError(
                f"there is no InferenceService {self.name} in namespace {self.namespace}: deploy it first"
            )
        return service

    def create(self, document: dict) -> InferenceService:
        """ConflictError where one appeared meanwhile."""
        try:
            return InferenceService(self._call(self._sdk.create, _model(document), namespace=self.namespace))
        except _AbsentError as absent:
            raise RolloutError(absent.message) from None

    def replace(self, document: dict, dry_run: bool = False) -> InferenceService:
        """Writes the whole object, which alone can clear a field: the SDK's patch drops what is None.

        ConflictError if the object is not at the document's resourceVersion any more. A dry run passes admission and
        defaulting, and writes nothing.
        """
        try:
            if not dry_run:
                call = self._call(self._sdk.replace, self.name, _model(document), namespace=self.namespace)
            else:
                where = (constants.KSERVE_GROUP, constants.KSERVE_V1BETA1_VERSION, self.namespace, PLURAL, self.name)
                replace = self._sdk.api_instance.replace_namespaced_custom_object
                call = self._call(replace, *where, document, dry_run="All")
        except _AbsentError as absent:
            raise RolloutError(absent.message) from None
        return InferenceService(call)

    def delete(self) -> bool:
        """False where there was nothing to delete."""
        try:
            self._call(self._sdk.delete, self.name, namespace=self.namespace)
        except _AbsentError:
            return False
        return True

    def edit(self, change: Callable[[InferenceService], dict | None]) -> tuple[InferenceService, InferenceService]:
        """Read, change, replace, and again from the reading on when somebody else wrote in between.

        `change` returns the new document, or None if nothing is to be written. Returns the object as it was
        and as it is now.
        """

        def attempt() -> tuple[InferenceService, InferenceService]:
            live = self.require()
            document = change(live)
            return live, live if document is None else self.replace(document)

        return self.retry(attempt)

    def retry(self, attempt: Callable[[], Any]) -> Any:
        """`attempt` again while it meets a ConflictError or, for Patience.timeout, an API that is away.

        Controllers write the status all the time, and a control plane restarts: neither may leave a rollout half way.
        An address at which nothing has ever answered is taken for a wrong one.
        """
        deadline = time.monotonic() + self._patience.timeout
        conflicts = 0
        while True:
            try:
                return attempt()
            except ConflictError:
                conflicts += 1
                if conflicts == CONFLICT_ATTEMPTS:
                    raise
                time.sleep(min(0.05 * conflicts, 0.5))
            except UnavailableError as error:
                if not self._answered or time.monotonic() >= deadline:
                    raise
                self._progress.say(f"trying again: {error}")
                time.sleep(self._patience.poll)

    def _call(self, method: Callable[..., dict], *args: Any, **options: Any) -> dict:
        try:
            answer = method(*args, **options)
        except client.ApiException as error:
            raise self._refusal(error) from None
        except RuntimeError as error:
            # KServeClient wraps the API's answer into the text of a RuntimeError; the answer itself is its context.
            if isinstance(error.__context__, client.ApiException):
                raise self._refusal(error.__context__) from None
            raise RolloutError(f"the KServe SDK failed on {self.name}: {_one_line(str(error))}") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            host = self._sdk.api_instance.api_client.configuration.host
            cause = getattr(error, "reason", None) or error
            raise UnavailableError(f"the Kubernetes API at {host} cannot be reached: {_one_line(str(cause))}") from None
        self._answered = True
        return answer

    def _refusal(self, error: client.ApiException) -> RolloutError:
        self._answered = self._answered or error.status > 0
        message, reason = _status(error)
        where = f"{self.name} in namespace {self.namespace}"
        if error.status == 404:
            if reason != "NotFound":
                return RolloutError(f"this cluster has no InferenceServices ({API_VERSION}): install KServe first")
            return _AbsentError(message)
        if error.status == 409:
            return ConflictError(f"somebody else writes {where} all the time: {message}")
        if "admission webhook" in message or error.status in (400, 422):
            return RolloutError(f"the cluster refuses {where}: {message}")
        if error.status in (401, 403):
            return RolloutError(f"not allowed on {where}: {message}")
        if error.status == 0 or error.status == 429 or error.status >= 500:
            return UnavailableError(f"the Kubernetes API has a fault ({error.status}): {message}")
        return RolloutError(f"the Kubernetes API answers {error.status}: {message}")


class _AbsentError(RolloutError):
    """The API has no such object (or no such namespace)."""

    @property
    def message(self) -> str:
        return str(self)


def _model(document: dict) -> V1beta1InferenceService:
    """The SDK's model around plain fields: a field this SDK does not know travels along, as does an explicit null."""
    document = copy.deepcopy(document)
    metadata = document["metadata"]
    return V1beta1InferenceService(
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata=client.V1ObjectMeta(
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            labels=metadata.get("labels"),
            annotations=metadata.get("annotations"),
            finalizers=metadata.get("finalizers"),
            owner_references=metadata.get("ownerReferences"),
            resource_version=metadata.get("resourceVersion"),
            uid=metadata.get("uid"),
        ),
        spec=document["spec"],
    )


def _check_kubeconfig(files: str) -> None:
    """The client library looks into its files without checking their form. Raises ConfigException, OSError."""
    for path in (Path(file).expanduser() for file in files.split(os.pathsep) if file):
        if not path.exists():  # which is the client library's to judge
            continue
        try:
            document = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise config.ConfigException(f"{path} is not YAML: {error}") from None
        if not isinstance(document, dict):
            raise config.ConfigException(f"{path} holds no mapping")
        for field, inner in KUBECONFIG_LISTS.items():
            entries = document.get(field) or []
            if not isinstance(entries, list) or not all(
                isinstance(entry, dict) and "name" in entry and isinstance(entry.get(inner), dict) for entry in entries
            ):
                raise config.ConfigException(f"{path}: {field} is no list of a name and a {inner} each")


def _namespace_of(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the kubeconfig's context; inside a pod, the pod's own."""
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return get_default_target_namespace().strip()
    chosen = next((item for item in contexts if item["name"] == context), active)
    return chosen["context"].get("namespace") or "default"


def _status(error: client.ApiException) -> tuple[str, str]:
    """The message and the reason of a Kubernetes Status; another body is its own message and has no reason."""
    body = error.body or error.reason or ""
    try:
        status = json.loads(body)
        return _one_line(status["message"]), status.get("reason", "")
    except (ValueError, TypeError, KeyError):
        return _one_line(str(body)), ""


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
