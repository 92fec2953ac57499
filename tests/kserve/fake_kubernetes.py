"""A Kubernetes API for InferenceServices over HTTP, with the controllers of KServe and Knative simulated behind it."""

from __future__ import annotations

import copy
import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kserve.fake_controller import Controller, Delays

GROUP = "/apis/serving.kserve.io/v1beta1/namespaces/"
FINALIZER = "inferenceservice.finalizers"


@dataclass(frozen=True)
class Write:
    """One request that changed something, or tried to."""

    method: str
    body: Any
    dry_run: bool
    status: int


@dataclass
class RefusalError(Exception):
    """A Kubernetes Status that is no success."""

    code: int
    reason: str
    message: str

    def body(self) -> dict:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


_AWAY = RefusalError(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: null removes a field, objects are merged, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


@dataclass
class FakeKubernetes:
    """Keeps InferenceServices as the API server does; `url` and `kubeconfig` lead to it while it is entered."""

    folder: Path
    delays: Delays = field(default_factory=Delays)
    namespaces: tuple[str, ...] = ("tts", "other")
    installed: bool = True
    allowed: bool = True
    conflicts: int = 0
    # How many of the next calls fail, by method; `applied`: only after their work is done.
    faults: dict[str, int] = field(default_factory=dict)
    applied: bool = False
    on_write: Callable[[Write], None] | None = None

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.writes: list[Write] = []
        self.finalize_at: dict[tuple[str, str], float] = {}
        self._objects: dict[tuple[str, str], dict] = {}
        self._controllers: dict[str, Controller] = {}
        self._version = 100
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> FakeKubernetes:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()))
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def live(self, name: str = "cosyvoice", namespace: str = "tts") -> dict:
        """The object as a client would read it now."""
        with self.lock:
            return copy.deepcopy(self._read((namespace, name)))

    def status(self, name: str = "cosyvoice") -> dict:
        return self.live(name)["status"]["components"]["predictor"]

    def written(self) -> list[Write]:
        """The writes that changed something."""
        return [write for write in self.writes if write.status < 300 and not write.dry_run]

    def exists(self, name: str = "cosyvoice", namespace: str = "tts") -> bool:
        with self.lock:
            self._advance()
            return (namespace, name) in self._objects

    def handle(self, method: str, path: str, query: dict, content_type: str, body: Any) -> tuple[int, dict]:
        """One request, start to end."""
        with self.lock:
            self._advance()
            if not self.installed:
                raise LookupError
            failing = self.faults.get(method, 0) > 0 and "dryRun" not in query
            if failing:
                self.faults[method] -= 1
            if failing and not self.applied:
                raise _AWAY
            if not self.allowed:
                verb = {"GET": "get", "PUT": "update", "POST": "create", "DELETE": "delete"}[method]
                message = f'inferenceservices.serving.kserve.io is forbidden: User "ci" cannot {verb} resource'
                raise RefusalError(403, "Forbidden", message)
            if not path.startswith(GROUP):
                raise LookupError
            namespace, kind, *rest = path.removeprefix(GROUP).split("/")
            if kind != "inferenceservices":
                raise LookupError
            dry_run = query.get("dryRun") == ["All"]
            done = self._done(method, namespace, rest, content_type, body, dry_run)
            if failing:
                raise _AWAY
            return done

    def _done(
        self, method: str, namespace: str, rest: list[str], content_type: str, body: Any, dry_run: bool
    ) -> tuple[int, dict]:
        if method == "POST":
            return 201, self._create(namespace, body, dry_run)
        key = (namespace, rest[0])
        if method == "GET":
            return 200, self._read(key)
        if method == "DELETE":
            return 200, self._delete(key)
        if method == "PATCH":
            if content_type != "application/merge-patch+json":
                raise RefusalError(415, "UnsupportedMediaType", f"the body of the request was in {content_type}")
            body = merge_patch(self._read(key), body)
        return 200, self._update(key, body, rest[1:] == ["status"], dry_run)

    def _read(self, key: tuple[str, str]) -> dict:
        self._advance()
        if key not in self._objects:
            raise RefusalError(404, "NotFound", f'inferenceservices.serving.kserve.io "{key[1]}" not found')
        return self._objects[key]

    def _create(self, namespace: str, body: dict, dry_run: bool) -> dict:
        name = body["metadata"]["name"]
        if namespace not in self.namespaces:
            raise RefusalError(404, "NotFound", f'namespaces "{namespace}" not found')
        if (namespace, name) in self._objects:
            raise RefusalError(409, "AlreadyExists", f'inferenceservices.serving.kserve.io "{name}" already exists')
        item = _admitted(body, None)
        item["metadata"] |= {
            "namespace": namespace,
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "finalizers": [FINALIZER],
        }
        item.pop("status", None)
        if not dry_run:
            self._store((namespace, name), item)
            self._controllers[item["metadata"]["uid"]] = Controller(self.delays)
        return item

    def _update(self, key: tuple[str, str], body: dict, status_only: bool, dry_run: bool) -> dict:
        old = self._read(key)
        if self.conflicts and not dry_run:
            # As if a controller had written its status between the client's read and its write.
            self.conflicts -= 1
            self._store(key, old)
        version = body["metadata"].get("resourceVersion")
        if version is not None and version != self._objects[key]["metadata"]["resourceVersion"]:
            message = f'Operation cannot be fulfilled on "{key[1]}": the object has been modified'
            raise RefusalError(409, "Conflict", message)
        if status_only:
            item = {**old, "status": body.get("status")}
        else:
            item = _admitted(body, old)
            kept = ("uid", "namespace", "name", "generation", "deletionTimestamp", "resourceVersion")
            item["metadata"] |= {name: old["metadata"][name] for name in kept if name in old["metadata"]}
            item["status"] = old.get("status")
            if item["spec"] != old["spec"]:
                item["metadata"]["generation"] += 1
        item = {name: value for name, value in item.items() if value is not None}
        if not dry_run and item != old:
            self._store(key, item)
        return item

    def _delete(self, key: tuple[str, str]) -> dict:
        item = copy.deepcopy(self._read(key))
        item["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        self._store(key, item)
        self.finalize_at.setdefault(key, time.monotonic() + self.delays.finalizer)
        return item

    def _store(self, key: tuple[str, str], item: dict) -> None:
        self._version += 1
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = item

    def _advance(self) -> None:
        """Lets the controllers do what is due by now."""
        for key, due in list(self.finalize_at.items()):
            if time.monotonic() >= due:
                del self.finalize_at[key], self._objects[key]
        for key, item in list(self._objects.items()):
            if "deletionTimestamp" in item["metadata"]:
                continue
            status = self._controllers[item["metadata"]["uid"]].status(item)
            if status != item.get("status") and status is not None:
                self._store(key, {**item, "status": status})

    def _kubeconfig(self) -> dict:
        context = {"cluster": "fake", "user": "ci", "namespace": "tts"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "ci", "user": {"token": "secret"}}],
            "contexts": [
                {"name": "fake", "context": context},
                {"name": "elsewhere", "context": {**context, "namespace": "other"}},
            ],
        }


def _admitted(body: dict, old: dict | None) -> dict:
    """What defaulting makes of an object, or the refusal of KServe's webhook."""
    item = copy.deepcopy(body)
    predictor = item["spec"]["predictor"]
    for container in predictor.get("containers", []):
        container.setdefault("name", "kserve-container")
        container.setdefault("resources", {"requests": {"cpu": "1", "memory": "2Gi"}})
        if any(entry["name"] == "PYTHONPATH" for entry in container.get("env", [])):
            raise _denied("environment variable PYTHONPATH is not allowed")
    mode = "serving.kserve.io/deploymentMode"
    annotations = item["metadata"].get("annotations") or {}
    if old is not None and annotations.get(mode) != old["metadata"].get("annotations", {}).get(mode):
        raise _denied("update rejected: deploymentMode cannot be changed")
    canaries = item["spec"].get("canary") or []
    if canaries:
        _admit_canaries(predictor, canaries, annotations.get(mode))
    return item


def _admit_canaries(predictor: dict, canaries: list[dict], mode: str | None) -> None:
    if mode != "Standard":
        raise _denied("canary is only supported in Standard deployment mode")
    env = [entry["name"] for entry in predictor.get("containers", [{}])[0].get("env", [])]
    if "model" not in predictor and "STORAGE_URI" not in env:
        raise _denied("canary requires a stable predictor with a model")
    for canary in canaries:
        if not canary["predictor"].get("name") or canary["predictor"]["name"] == predictor.get("name"):
            raise _denied("canary predictor.name is required and must not be the stable one's")
        if not 0 <= canary["trafficPercent"] <= 100:
            raise RefusalError(422, "Invalid", "spec.canary[0].trafficPercent: should be from 0 to 100")
        for scaling in ("maxReplicas", "scaleTarget", "scaleMetric", "autoScaling", "workerSpec"):
            if scaling in canary["predictor"]:
                raise _denied(f"canary must not set {scaling}")
        if canary["predictor"].get("minReplicas", 0) > predictor.get("minReplicas", 1):
            raise _denied("canary minReplicas must not exceed the stable predictor's")
    if sum(canary["trafficPercent"] for canary in canaries) > 100:
        raise _denied("sum of canary trafficPercent values must be <= 100")


def _denied(message: str) -> RefusalError:
    webhook = 'admission webhook "inferenceservice.kserve-webhook-server.validator" denied the request: '
    return RefusalError(403, "Forbidden", webhook + message)


def _handler(fake: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            url = urlsplit(self.path)
            body = json.loads(raw) if raw else None
            query = parse_qs(url.query)
            try:
                content_type = self.headers.get("Content-Type", "")
                code, answer = fake.handle(self.command, url.path, query, content_type, body)
            except RefusalError as refusal:
                code, answer = refusal.code, refusal.body()
            except LookupError:
                code, answer = 404, None
            write = Write(self.command, body, "dryRun" in query, code)
            if self.command != "GET":
                fake.writes.append(write)
            # The API server answers a path that it does not know in plain text.
            payload = b"404 page not found\n" if answer is None else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if answer is None else "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            if fake.on_write is not None and self.command != "GET":
                fake.on_write(write)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
