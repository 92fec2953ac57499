"""Deploying, looking at, warming and deleting: done once, done twice, and refused in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.kserve.fake_kubernetes import FakeKubernetes
from tests.kserve.rollout_command import SCRIPT
from tests.kserve.rollout_stage import FIRST, NAME, SECOND, Stage, manifest

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as running:
        yield running


def test_the_script_runs_by_its_path_and_its_folder_does_not_hide_the_sdk(stage: Stage, tmp_path: Path) -> None:
    assert not (SCRIPT.parent / "__init__.py").exists()
    command = [sys.executable, str(SCRIPT), "deploy", "-f", stage.file(CONFIG_MAP, manifest()), "--poll", "0.05"]
    command += ["--kubeconfig", str(stage.cluster.kubeconfig), "--timeout", "20"]
    # Two folders named kserve then come before the installed package.
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "left to kubectl apply: ConfigMap other\n" in done.stdout
    assert f"created {NAME} in namespace tts" in done.stdout
    assert f"ready: {FIRST} 100 %" in done.stdout


def test_without_the_sdk_a_sentence_says_what_to_install_and_warming_needs_none_of_it(stage: Stage) -> None:
    blocked = "import runpy, sys; sys.modules['kserve'] = None; sys.argv = sys.argv[1:]\n"
    blocked += "sys.path[0] = sys.argv[0].rpartition('/')[0]; runpy.run_path(sys.argv[0], run_name='__main__')"

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", blocked, str(SCRIPT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    refused = run("status", "--name", NAME)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "pip install 'kserve" in refused.stderr
    with _Speaker([]) as speaker:
        warmed = run("warm", "--url", speaker.url)
    assert (warmed.returncode, warmed.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["launch"],
        ["canary", "--name", NAME, "--image", "x", "--percent", "101"],
        ["canary", "--name", NAME, "--image", "x", "--percent", "-1"],
        ["canary", "--name", NAME, "--image", "x"],
        ["canary", "--name", NAME, "--image", "x", "-f", "y", "--percent", "5"],
        ["watch", "--name", NAME, "--steps", "50,25"],
        ["status", "--name", NAME, "--timeout", "soon"],
        ["promote"],
    ],
)
def test_a_command_line_that_is_none_exits_with_2(stage: Stage, arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not stage.cluster.writes


def test_deploying_twice_writes_once(stage: Stage) -> None:
    file = stage.file(manifest())
    assert stage.run("deploy", "-f", file).code == 0
    again = stage.run("deploy", "-f", file)
    assert again.code == 0
    assert "unchanged" in again.out
    assert len(stage.cluster.written()) == 1
    assert stage.cluster.status()["latestCreatedRevision"] == FIRST


def test_an_update_comes_from_standard_input_and_waits_for_its_own_revision(stage: Stage) -> None:
    stage.live()
    outcome = stage.run("deploy", "-f", "-", stdin=yaml.safe_dump(manifest("cosyserve:2")))
    assert outcome.code == 0, outcome.err
    assert f"ready: {SECOND} 100 %" in outcome.out
    assert f"{SECOND} is not ready" in outcome.out
    assert stage.cluster.live()["metadata"]["finalizers"] == ["inferenceservice.finalizers"]


def test_a_stale_ready_with_a_generation_that_runs_ahead_is_not_believed(stage: Stage) -> None:
    stage.live()
    # Annotations move the Knative Service's generation but not the InferenceService's, which falls behind by three.
    for window in ("60s", "70s", "80s"):
        changed = manifest()
        changed["metadata"]["annotations"]["autoscaling.knative.dev/window"] = window
        assert stage.run("deploy", "-f", stage.file(changed)).code == 0
    live = stage.cluster.live()
    assert live["status"]["observedGeneration"] > live["metadata"]["generation"] + 1
    outcome = stage.run("deploy", "-f", stage.file(manifest("cosyserve:stuck")), timeout=1)
    assert outcome.code == 1
    assert "a ready revision with its traffic: not reached after 1 s" in outcome.err


def test_what_the_manifest_no_longer_sets_goes_and_what_others_set_stays(stage: Stage) -> None:
    first = manifest()
    first["metadata"]["annotations"]["autoscaling.knative.dev/window"] = "60s"
    assert stage.run("deploy", "-f", stage.file(first)).code == 0
    live = stage.cluster.live()
    live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    live["metadata"]["labels"] = {"argocd": "app"}
    stage.cluster.handle(
        "PUT", f"/apis/serving.kserve.io/v1beta1/namespaces/tts/inferenceservices/{NAME}", {}, "", live
    )
    assert stage.run("deploy", "-f", stage.file(manifest())).code == 0
    metadata = stage.cluster.live()["metadata"]
    assert "autoscaling.knative.dev/window" not in metadata["annotations"]
    assert "kubectl.kubernetes.io/last-applied-configuration" in metadata["annotations"]
    assert metadata["labels"] == {"argocd": "app"}


def test_a_broken_revision_fails_the_deploy_and_can_be_rolled_back(stage: Stage) -> None:
    stage.live()
    outcome = stage.run("deploy", "-f", stage.file(manifest("cosyserve:broken")))
    assert outcome.code == 1
    assert f'Revision "{SECOND}" failed with message: Container failed with: exit code 1' in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert stage.shares() == {FIRST: 100}
    back = stage.run("rollback")
    assert back.code == 0, back.err
    assert stage.image == "cosyserve:1"
    assert stage.percent is None


def test_a_first_deploy_that_never_gets_ready_says_what_it_waited_for(stage: Stage) -> None:
    outcome = stage.run("deploy", "-f", stage.file(manifest("cosyserve:stuck")), timeout=0.6)
    assert outcome.code == 1
    assert f"{FIRST} is not ready; PredictorConfigurationReady Unknown (Deploying)" in outcome.err
    assert stage.run("rollback").out.startswith("nothing to roll back")


def test_a_deploy_that_was_killed_goes_on_when_it_is_run_again(stage: Stage) -> None:
    stage.live()
    file = stage.file(manifest("cosyserve:2"))
    running = stage.start("deploy", "-f", file)
    running.wait_line("updated")
    running.kill()
    again = stage.run("deploy", "-f", file)
    assert again.code == 0, again.err
    assert "unchanged" in again.out
    assert stage.shares() == {SECOND: 100}
    assert len(stage.cluster.written()) == 1


def test_conflicts_are_tried_again_from_the_reading_on(stage: Stage) -> None:
    stage.live()
    stage.cluster.conflicts = 3
    assert stage.run("deploy", "-f", stage.file(manifest("cosyserve:2"))).code == 0
    assert [write.status for write in stage.cluster.writes if not write.dry_run] == [409, 409, 409, 200]


def test_an_api_that_is_away_for_a_moment_does_not_end_a_wait(stage: Stage) -> None:
    running = stage.start("deploy", "-f", stage.file(manifest()))
    running.wait_line("created")
    stage.cluster.faults["GET"] = 3
    outcome = running.wait()
    assert outcome.code == 0, outcome.err
    assert "the server is currently unable to handle the request" in outcome.out


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "holds 0 InferenceServices among 0 objects"),
        ([CONFIG_MAP], "holds 0 InferenceServices among 1 objects"),
        ([manifest(), manifest()], "holds 2 InferenceServices among 2 objects"),
        ([{**manifest(), "apiVersion": "serving.kserve.io/v1alpha2"}], "is of serving.kserve.io/v1alpha2"),
        ([{**manifest(), "spec": {}}], "lacks spec.predictor"),
        ([{**manifest(), "metadata": {}}], "lacks metadata.name"),
        ([manifest(canaryTrafficPercent=5) | {"metadata": {"name": NAME, "namespace": "gone"}}], '"gone" not found'),
    ],
)
def test_a_manifest_that_cannot_be_deployed_is_refused(stage: Stage, documents: list[dict], message: str) -> None:
    outcome = stage.run("deploy", "-f", stage.file(*documents))
    assert outcome.code == 1
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not stage.cluster.written()


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), (None, "cannot be read: No such file")])
def test_a_file_that_is_no_manifest_is_named(stage: Stage, text: str | None, message: str) -> None:
    file = stage.folder / "broken.yaml"
    if text is not None:
        file.write_text(text)
    outcome = stage.run("deploy", "-f", str(file))
    assert outcome.code == 1
    assert f"{file} {message}" in outcome.err


def test_what_the_webhook_says_reaches_the_terminal(stage: Stage) -> None:
    refused = manifest()
    refused["spec"]["predictor"]["containers"][0]["env"].append({"name": "PYTHONPATH", "value": "/x"})
    outcome = stage.run("deploy", "-f", stage.file(refused))
    assert outcome.code == 1
    assert "denied the request: environment variable PYTHONPATH is not allowed" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_missing_right_a_missing_kserve_and_a_missing_cluster_are_three_sentences(stage: Stage) -> None:
    stage.cluster.allowed = False
    assert 'not allowed on cosyvoice in namespace tts: inferenceservices.serving.kserve.io is forbidden: User "ci"' in (
        stage.run("status").err
    )
    stage.cluster.installed = False
    assert "this cluster has no InferenceServices" in stage.run("status").err
    (stage.folder / "gone").mkdir()
    with FakeKubernetes(stage.folder / "gone") as gone:
        url = gone.url
    outcome = stage.run("status", "--kubeconfig", str(gone.kubeconfig))
    assert outcome.code == 1
    assert f"the Kubernetes API at {url} cannot be reached" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_kubeconfig_that_is_none_and_a_context_that_is_unknown_are_named(stage: Stage) -> None:
    assert "the kubeconfig is of no use" in stage.run("status", "--kubeconfig", "/nowhere").err
    outcome = stage.run("status", "--context", "unknown")
    assert outcome.code == 1
    assert "unknown" in outcome.err


def test_the_namespace_comes_from_the_context_and_can_be_given(stage: Stage) -> None:
    assert "in namespace other" in stage.run("status", "--context", "elsewhere").err
    assert "in namespace mine" in stage.run("status", "--namespace", "mine").err


def test_the_status_is_a_table_and_json(stage: Stage) -> None:
    stage.live()
    stage.canary(percent=10)
    table = stage.run("status")
    assert table.code == 0
    rows = [line.split() for line in table.out.splitlines()]
    assert [FIRST, "90", "%", "yes", "stable", "prev"] in rows
    assert [SECOND, "10", "%", "yes", "canary", "latest"] in rows
    data = json.loads(stage.run("status", "--json").out)
    assert {row["name"]: row["percent"] for row in data["revisions"]} == {FIRST: 90, SECOND: 10}
    assert (data["canaryTrafficPercent"], data["keptForRollback"], data["ready"]) == (10, FIRST, True)


def test_the_status_tells_why_something_is_not_ready(stage: Stage) -> None:
    stage.live()
    stage.run("deploy", "-f", stage.file(manifest("cosyserve:broken")))
    table = stage.run("status")
    assert [SECOND, "0", "%", "no", "newest"] in [line.split() for line in table.out.splitlines()]
    assert "! Ready False (RevisionFailed: " in table.out


def test_a_deletion_outlives_a_fault_of_the_api_at_any_call(stage: Stage) -> None:
    stage.live()
    stage.cluster.faults |= {"DELETE": 1, "GET": 1}
    outcome = stage.run("delete")
    assert outcome.code == 0, outcome.err
    assert not stage.cluster.exists()
    assert stage.cluster.faults == {"DELETE": 0, "GET": 0}


def test_an_api_that_stays_away_ends_a_command_at_its_timeout_and_json_stays_json(stage: Stage) -> None:
    stage.live()
    stage.cluster.faults["GET"] = 2
    outcome = stage.run("status", "--json")
    assert json.loads(outcome.out)["ready"]
    assert "trying again" in outcome.err
    stage.cluster.faults["GET"] = 10_000
    outcome = stage.run("promote", timeout=0.3)
    assert outcome.code == 1
    assert "the Kubernetes API has a fault (503)" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"annotations": 5, "labels": []}'])
def test_a_mark_that_somebody_edited_is_named(stage: Stage, text: str) -> None:
    edited = manifest()
    edited["metadata"]["annotations"]["cosyserve/applied"] = text
    stage.live(edited)
    outcome = stage.run("deploy", "-f", stage.file(manifest("cosyserve:2")))
    assert outcome.code == 1
    assert "the annotation cosyserve/applied of cosyvoice was not written by this command" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not stage.cluster.written()


def test_a_failure_of_the_sdk_itself_is_a_sentence(stage: Stage) -> None:
    failing = "import runpy, sys; from kserve.api.kserve_client import KServeClient\n"
    failing += "def get(self, *names, **options): raise RuntimeError('no such\\nwatch')\nKServeClient.get = get\n"
    failing += "sys.argv = sys.argv[1:]; sys.path[0] = sys.argv[0].rpartition('/')[0]\n"
    failing += "runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", failing, str(SCRIPT), "status", "--name", NAME]
    command += ["--kubeconfig", str(stage.cluster.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, f"rollout.py: the KServe SDK failed on {NAME}: no such watch\n")


def test_deleting_waits_until_it_is_gone_and_absence_is_no_failure(stage: Stage) -> None:
    stage.live()
    outcome = stage.run("delete")
    assert outcome.code == 0, outcome.err
    assert "waiting until cosyvoice is gone; finalizers: inferenceservice.finalizers" in outcome.out
    assert not stage.cluster.exists()
    again = stage.run("delete")
    assert (again.code, again.err) == (0, "")
    assert "absent" in again.out


def test_a_deletion_that_does_not_end_is_told(stage: Stage) -> None:
    stage.live()
    stage.cluster.delays.finalizer = 60
    outcome = stage.run("delete", timeout=0.3)
    assert outcome.code == 1
    assert "finalizers left: inferenceservice.finalizers" in outcome.err


class _Speaker:
    """The gateway of a revision that is asleep: answers by `script`, then speaks."""

    def __init__(self, script: list[tuple[int, bytes]]) -> None:
        self.seen: list[tuple[str, dict]] = []
        speaker = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                speaker.seen.append((self.headers["Host"], body))
                code, payload = script.pop(0) if script else (200, b"\0\1" * 100)
                self.send_response(code)
                # A negative length stands for a stream that breaks off.
                self.send_header("Content-Length", str(len(payload) + (50 if payload == b"cut" else 0)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> _Speaker:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_warming_goes_on_until_the_sentence_is_spoken_to_its_end(stage: Stage) -> None:
    loading = json.dumps({"error": {"code": "loading", "message": "The model loads."}}).encode()
    script = [(503, loading), (504, b"activator request timeout"), (404, b""), (200, b"cut")]
    with _Speaker(script) as speaker:
        outcome = stage.run("warm", "--url", speaker.url, "--host", "latest-x.example.com", "--text", "Hello.")
    assert outcome.code == 0, outcome.err
    assert "spoke 200 bytes" in outcome.out
    assert len(speaker.seen) == 5
    assert speaker.seen[0] == (
        "latest-x.example.com",
        {"input": "Hello.", "response_format": "pcm", "stream": False},
    )


def test_warming_stops_at_a_refusal_and_at_its_timeout(stage: Stage) -> None:
    refusal = json.dumps({"error": {"code": "voice_required", "message": "Give a voice."}}).encode()
    with _Speaker([(400, refusal)]) as speaker:
        outcome = stage.run("warm", "--url", speaker.url)
        assert outcome.code == 1
        assert "answers 400" in outcome.err
        assert "Give a voice." in outcome.err
        assert len(speaker.seen) == 1
    with _Speaker([(503, b"")] * 1000) as speaker:
        outcome = stage.run("warm", "--url", speaker.url, timeout=2)
        assert outcome.code == 1
        assert "is not warm after 2 s" in outcome.err
        assert "it answers 503" in outcome.out
    assert "cannot be reached" in stage.run("warm", "--url", speaker.url, timeout=0.3).err


def test_warming_finds_the_tag_url_itself(stage: Stage) -> None:
    untagged = manifest()
    del untagged["metadata"]["annotations"]["serving.kserve.io/enable-tag-routing"]
    stage.live(untagged)
    assert "enable-tag-routing" in stage.run("warm").err
    assert stage.run("deploy", "-f", stage.file(manifest())).code == 0
    outcome = stage.run("warm", timeout=0.3)
    assert outcome.code == 1
    assert f"http://latest-{NAME}-predictor.tts.example.com is not warm" in outcome.err
