"""A cluster with one InferenceService and a Prometheus, on which the rollout command is run."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from tests.kserve.fake_controller import Delays
from tests.kserve.fake_kubernetes import GROUP, FakeKubernetes
from tests.kserve.fake_prometheus import FakePrometheus, Series
from tests.kserve.rollout_command import Outcome, Running, wait_until

NAME = "cosyvoice"
FIRST, SECOND, THIRD = (f"{NAME}-predictor-{number:05d}" for number in (1, 2, 3))
MODE = "serving.kserve.io/deploymentMode"


def manifest(image: str = "cosyserve:1", mode: str = "Knative", **predictor: object) -> dict:
    """An InferenceService with tag routing; further fields of the predictor by keyword."""
    container = {
        "image": image,
        "env": [{"name": "STORAGE_URI", "value": "pvc://models/cosyvoice"}],
        "ports": [{"containerPort": 8080, "name": "http1"}],
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": NAME, "annotations": {MODE: mode, "serving.kserve.io/enable-tag-routing": "true"}},
        "spec": {"predictor": {"minReplicas": 1, "containers": [container], **predictor}},
    }


class Stage:
    """`run` runs a command to its end, `start` leaves it running; both in namespace tts, for the service NAME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = FakeKubernetes(folder, Delays(notice=0.08, start=0.1, finalizer=0.15))
        self.prometheus = FakePrometheus()

    def __enter__(self) -> Stage:
        self.cluster.__enter__()
        self.prometheus.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__()
        self.prometheus.__exit__()

    def start(
        self,
        command: str,
        *arguments: str,
        stdin: str = "",
        timeout: float = 8,
        log: Path | None = None,
        ignored: int | None = None,
    ) -> Running:
        options = ["--kubeconfig", str(self.cluster.kubeconfig), "--poll", "0.03", "--settle", "0.3"]
        if command != "deploy":
            options += ["--name", NAME]
        if command in ("watch", "canary"):
            options += ["--prometheus", self.prometheus.url, "--interval", "0.2", "--check", "0.1", "--patience", "0.4"]
        return Running(self.folder, [command, *options, "--timeout", str(timeout), *arguments], stdin, log, ignored)

    def run(self, command: str, *arguments: str, stdin: str = "", timeout: float = 8) -> Outcome:
        return self.start(command, *arguments, stdin=stdin, timeout=timeout).wait()

    def file(self, *documents: dict) -> str:
        path = self.folder / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    def live(self, document: dict | None = None) -> None:
        """Puts a service there that is rolled out, without the command."""
        document = copy.deepcopy(document or manifest())
        self.cluster.handle("POST", f"{GROUP}tts/inferenceservices", {}, "application/json", document)
        wait_until(lambda: self._ready(), "the service to be ready")

    def canary(self, image: str = "cosyserve:2", percent: int = 10) -> None:
        """Starts a canary by the command, of whose revisions Prometheus then has good figures."""
        outcome = self.run("canary", "--image", image, "--percent", str(percent))
        assert outcome.code == 0, outcome.err
        for revision in (FIRST, SECOND):
            self.prometheus.series[revision] = Series()

    def shares(self) -> dict[str, int]:
        """Percent of the traffic by revision, without those that get none."""
        lines = self.cluster.status()["traffic"]
        revisions = {line["revisionName"] for line in lines}
        sums = {name: sum(line["percent"] for line in lines if line["revisionName"] == name) for name in revisions}
        return {name: percent for name, percent in sums.items() if percent}

    @property
    def percent(self) -> int | None:
        return self.cluster.live()["spec"]["predictor"].get("canaryTrafficPercent")

    @property
    def image(self) -> str:
        return self.cluster.live()["spec"]["predictor"]["containers"][0]["image"]

    def _ready(self) -> bool:
        conditions = self.cluster.live().get("status", {}).get("conditions", [])
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
