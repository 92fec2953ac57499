"""Canary, promotion and rollback: their writes, the order of these, and how they go on when cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kserve.fake_kubernetes import Write
from tests.kserve.rollout_command import wait_until
from tests.kserve.rollout_stage import FIRST, MODE, NAME, SECOND, THIRD, Stage, manifest

PREVIOUS = "cosyserve/previous"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as running:
        running.live()
        yield running


def _watched(stage: Stage, seen: list[int]) -> bool:
    """Notes the canary's share; true when the revision after it has traffic."""
    seen.append(stage.shares().get(SECOND, 0))
    return THIRD in stage.shares()


def test_one_write_makes_one_revision_and_gives_it_its_share(stage: Stage) -> None:
    outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
    assert outcome.code == 0, outcome.err
    assert f"{SECOND} is ready and has 10 % of the traffic" in outcome.out
    assert stage.shares() == {FIRST: 90, SECOND: 10}
    assert len(stage.cluster.written()) == 1
    again = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
    assert again.code == 0, again.err
    assert len(stage.cluster.written()) == 1
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND


def test_a_canary_comes_from_a_manifest_too(stage: Stage) -> None:
    changed = manifest("cosyserve:2", containerConcurrency=4)
    outcome = stage.run("canary", "-f", stage.file(changed), "--percent", "25")
    assert outcome.code == 0, outcome.err
    predictor = stage.cluster.live()["spec"]["predictor"]
    assert (predictor["containerConcurrency"], predictor["canaryTrafficPercent"]) == (4, 25)


def test_a_dark_launch_is_ready_and_reached_by_its_tag_only(stage: Stage) -> None:
    outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "0")
    assert outcome.code == 0, outcome.err
    assert stage.shares() == {FIRST: 100}
    lines = {line["revisionName"]: line.get("tag") for line in stage.cluster.status()["traffic"]}
    assert lines == {SECOND: "latest", FIRST: "prev"}
    assert f"http://latest-{NAME}-predictor.tts.example.com leads to it" in outcome.out


def test_a_dark_launch_without_tags_is_told_to_be_out_of_reach(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        untagged = manifest()
        del untagged["metadata"]["annotations"]["serving.kserve.io/enable-tag-routing"]
        stage.live(untagged)
        outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "0")
        assert outcome.code == 0, outcome.err
        assert "no URL leads to it" in outcome.out


def test_the_share_moves_without_a_new_revision(stage: Stage) -> None:
    stage.canary(percent=10)
    assert stage.run("canary", "--percent", "50").code == 0
    assert stage.shares() == {FIRST: 50, SECOND: 50}
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND


def test_another_canary_needs_force_and_still_leads_back_to_the_stable_one(stage: Stage) -> None:
    stage.canary("cosyserve:2", percent=10)
    refused = stage.run("canary", "--image", "cosyserve:3", "--percent", "5")
    assert refused.code == 1
    assert "another canary is under way at 10 %" in refused.err
    assert stage.image == "cosyserve:2"
    assert stage.run("canary", "--image", "cosyserve:3", "--percent", "5", "--force").code == 0
    assert stage.shares() == {FIRST: 95, THIRD: 5}
    assert stage.run("rollback").code == 0
    assert stage.image == "cosyserve:1"


@pytest.mark.parametrize("image", ["cosyserve:broken", "cosyserve:stuck"])
def test_what_was_never_ready_gets_no_canary(tmp_path: Path, image: str) -> None:
    with Stage(tmp_path) as stage:
        assert stage.run("deploy", "-f", stage.file(manifest(image)), timeout=0.4).code == 1
        outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
        assert outcome.code == 1
        assert "was never ready" in outcome.err
        assert stage.image == image


def test_a_canary_of_what_runs_already_and_a_canary_of_nothing_write_nothing(stage: Stage) -> None:
    same = stage.run("canary", "--image", "cosyserve:1", "--percent", "10")
    assert same.code == 0
    assert same.out.startswith("nothing to do")
    none = stage.run("canary", "--percent", "10")
    assert none.code == 1
    assert "no canary is under way" in none.err
    assert not stage.cluster.written()


def test_a_canary_without_a_service_says_to_deploy_first(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
        assert outcome.code == 1
        assert "there is no InferenceService cosyvoice in namespace tts: deploy it first" in outcome.err


def test_a_broken_canary_is_told_and_takes_no_traffic(stage: Stage) -> None:
    outcome = stage.run("canary", "--image", "cosyserve:broken", "--percent", "50")
    assert outcome.code == 1
    assert "exit code 1" in outcome.err
    assert "end it with rollback" in outcome.err
    assert stage.shares() == {FIRST: 100}
    refused = stage.run("promote")
    assert refused.code == 1
    assert stage.percent == 50
    assert stage.run("rollback").code == 0
    assert (stage.image, stage.percent) == ("cosyserve:1", None)


def test_a_deploy_does_not_end_a_canary_by_accident(stage: Stage) -> None:
    stage.canary(percent=10)
    refused = stage.run("deploy", "-f", stage.file(manifest("cosyserve:3")))
    assert refused.code == 1
    assert "a canary is under way" in refused.err
    assert stage.shares() == {FIRST: 90, SECOND: 10}


def test_a_forced_deploy_gives_the_canary_no_more_than_it_has(stage: Stage) -> None:
    stage.canary(percent=10)
    seen: list[int] = []
    stage.cluster.delays.start = 0.4
    running = stage.start("deploy", "-f", stage.file(manifest("cosyserve:3")), "--force")
    wait_until(lambda: _watched(stage, seen), "the third revision")
    assert running.wait().code == 0
    assert max(seen) == 10
    assert (stage.shares(), stage.percent) == ({THIRD: 100}, None)


def test_promoting_clears_the_percentage_and_makes_no_revision(stage: Stage) -> None:
    stage.canary(percent=10)
    outcome = stage.run("promote")
    assert outcome.code == 0, outcome.err
    assert f"promoted: {SECOND} has 100 % of the traffic" in outcome.out
    assert "canaryTrafficPercent" not in stage.cluster.live()["spec"]["predictor"]
    assert stage.shares() == {SECOND: 100}
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND
    written = len(stage.cluster.written())
    again = stage.run("promote")
    assert again.code == 0, again.err
    assert again.out.startswith("nothing to promote")
    assert len(stage.cluster.written()) == written


def test_promoting_from_100_percent_does_not_wait_for_what_changes_nothing(stage: Stage) -> None:
    stage.canary(percent=100)
    assert stage.percent == 100
    outcome = stage.run("promote", timeout=3)
    assert outcome.code == 0, outcome.err
    assert stage.percent is None
    # The Knative Service did not change, so the generation that KServe reports stays behind for good.
    live = stage.cluster.live()
    assert live["status"]["observedGeneration"] < live["metadata"]["generation"]
    for again in (("promote",), ("deploy", "-f", stage.file(manifest("cosyserve:2")))):
        outcome = stage.run(*again, timeout=3)
        assert outcome.code == 0, outcome.err


def test_promoting_waits_until_the_canary_is_ready(stage: Stage) -> None:
    stage.cluster.delays.start = 0.8
    running = stage.start("canary", "--image", "cosyserve:2", "--percent", "10")
    running.wait_line(f"{SECOND} is not ready")
    running.kill()
    outcome = stage.run("promote")
    assert outcome.code == 0, outcome.err
    assert f"waiting for a ready canary: {FIRST} 100 %; {SECOND} is not ready" in outcome.out
    assert stage.shares() == {SECOND: 100}


def test_a_rollback_brings_the_traffic_back_first_and_never_gives_it_to_the_canary(stage: Stage) -> None:
    stage.canary(percent=25)
    shares: list[int] = []
    stage.cluster.delays.start = 0.4
    running = stage.start("rollback")
    wait_until(lambda: _watched(stage, shares), "the restored revision")
    outcome = running.wait()
    assert outcome.code == 0, outcome.err
    assert max(shares) == 25
    assert (stage.image, stage.percent, stage.shares()) == ("cosyserve:1", None, {THIRD: 100})
    percents = [write.body["spec"]["predictor"].get("canaryTrafficPercent") for write in stage.cluster.written()]
    assert percents == [25, 0, 0, None]
    again = stage.run("rollback")
    assert (again.code, len(stage.cluster.written())) == (0, 4)
    assert again.out.startswith("nothing to roll back")


def test_a_rollback_restores_annotations_and_labels_too(stage: Stage) -> None:
    before = stage.cluster.live()
    changed = manifest("cosyserve:2")
    changed["metadata"]["annotations"]["autoscaling.knative.dev/window"] = "90s"
    changed["metadata"]["labels"] = {"release": "2"}
    assert stage.run("canary", "-f", stage.file(changed), "--percent", "10").code == 0
    assert stage.run("rollback").code == 0
    after = stage.cluster.live()
    assert after["spec"] == before["spec"]
    annotations = {key: value for key, value in after["metadata"]["annotations"].items() if key != PREVIOUS}
    assert annotations == before["metadata"]["annotations"]
    assert not after["metadata"].get("labels")


def test_a_finished_rollout_is_taken_back_only_on_demand(stage: Stage) -> None:
    stage.canary(percent=10)
    assert stage.run("promote").code == 0
    kept = stage.run("rollback")
    assert kept.code == 0
    assert "--undo takes back the finished rollout" in kept.out
    assert stage.shares() == {SECOND: 100}
    undone = stage.run("rollback", "--undo")
    assert undone.code == 0, undone.err
    assert f"{FIRST} has 100 % of the traffic again" in undone.out
    assert (stage.image, stage.shares()) == ("cosyserve:1", {THIRD: 100})
    assert stage.run("rollback", "--undo").out.startswith("nothing to roll back")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_rollback_that_was_killed_after_any_write_goes_on(stage: Stage, number: int) -> None:
    stage.canary(percent=10)
    puts: list[Write] = []
    running = stage.start("rollback")

    def killed_after(write: Write) -> None:
        if not write.dry_run and write.status < 300:
            puts.append(write)
        if len(puts) == number:
            running.kill()

    stage.cluster.on_write = killed_after
    wait_until(lambda: len(puts) == number, "the write")
    stage.cluster.on_write = None
    if number == 2:
        refused = stage.run("promote")
        assert "a rollback is under way" in refused.err
    outcome = stage.run("rollback")
    assert outcome.code == 0, outcome.err
    assert stage.image == "cosyserve:1"
    wait_until(lambda: stage.shares() == {THIRD: 100}, "the restored revision's traffic")
    assert stage.percent is None


def test_a_canary_that_was_killed_goes_on_when_it_is_run_again(stage: Stage) -> None:
    arguments = ("canary", "--image", "cosyserve:2", "--percent", "10")
    running = stage.start(*arguments)
    running.wait_line("waiting for 10 % on the canary")
    running.kill()
    outcome = stage.run(*arguments)
    assert outcome.code == 0, outcome.err
    assert stage.shares() == {FIRST: 90, SECOND: 10}
    assert len(stage.cluster.written()) == 1


def test_a_conflict_between_reading_and_writing_is_tried_again(stage: Stage) -> None:
    stage.cluster.conflicts = 2
    stage.canary(percent=10)
    stage.cluster.conflicts = 2
    assert stage.run("promote").code == 0
    assert [write.status for write in stage.cluster.writes if not write.dry_run] == [409, 409, 200] * 2


@pytest.mark.parametrize("applied", [False, True])
def test_a_fault_of_the_api_at_a_write_makes_neither_a_second_revision_nor_an_end(stage: Stage, applied: bool) -> None:
    stage.cluster.applied = applied
    for arguments in (("canary", "--image", "cosyserve:2", "--percent", "10"), ("promote",)):
        stage.cluster.faults["PUT"] = 1
        outcome = stage.run(*arguments)
        assert outcome.code == 0, outcome.err
        assert stage.cluster.faults["PUT"] == 0
    assert (stage.shares(), stage.percent) == ({SECOND: 100}, None)
    assert stage.cluster.status()["latestCreatedRevision"] == SECOND
    stage.cluster.faults["PUT"] = 1
    outcome = stage.run("rollback", "--undo")
    assert outcome.code == 0, outcome.err
    assert (stage.image, stage.shares(), stage.percent) == ("cosyserve:1", {THIRD: 100}, None)


def test_a_canary_of_somebody_else_is_stopped_but_not_guessed_back(stage: Stage) -> None:
    live = stage.cluster.live()
    live["spec"]["predictor"]["canaryTrafficPercent"] = 30
    live["spec"]["predictor"]["containers"][0]["image"] = "cosyserve:2"
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/tts/inferenceservices/{NAME}"
    stage.cluster.handle("PUT", path, {}, "", live)
    wait_until(lambda: stage.shares() == {FIRST: 70, SECOND: 30}, "the canary")
    outcome = stage.run("rollback")
    assert outcome.code == 1
    assert "the traffic is back, but the canary was not started by this command" in outcome.err
    assert stage.shares() == {FIRST: 100}
    ended = stage.run("deploy", "-f", stage.file(manifest()), "--force")
    assert ended.code == 0, ended.err
    assert stage.shares() == {THIRD: 100}


def test_a_spec_too_large_for_the_record_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.live(manifest(initContainers=[{"name": "large", "image": "x", "args": ["a" * 70_000]}]))
        outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
        assert outcome.code == 1
        assert "over the 65,536 that are kept for a rollback" in outcome.err
        assert not stage.cluster.written()


class TestStandardMode:
    @pytest.fixture
    def stage(self, tmp_path: Path) -> Iterator[Stage]:
        with Stage(tmp_path) as running:
            running.live(manifest(mode="Standard", maxReplicas=4, minReplicas=2))
            yield running

    def test_a_canary_is_a_second_deployment_with_its_share(self, stage: Stage) -> None:
        outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "20")
        assert outcome.code == 0, outcome.err
        spec = stage.cluster.live()["spec"]
        assert spec["predictor"]["containers"][0]["image"] == "cosyserve:1"
        (canary,) = spec["canary"]
        assert canary["trafficPercent"] == 20
        assert canary["predictor"]["containers"][0]["image"] == "cosyserve:2"
        assert "maxReplicas" not in canary["predictor"]
        assert "trafficPercent" in json.dumps(stage.cluster.live()["status"]["canaryStatuses"])
        assert stage.run("canary", "--image", "cosyserve:2", "--percent", "20").code == 0
        assert len(stage.cluster.written()) == 1
        rows = [line.split() for line in stage.run("status").out.splitlines()]
        assert ["canary", "20", "%", "yes", "canary"] in rows
        assert [f"{NAME}-predictor", "80", "%", "yes", "stable"] in rows

    def test_a_dark_launch_has_a_pod_and_its_share_moves(self, stage: Stage) -> None:
        assert stage.run("canary", "--image", "cosyserve:2", "--percent", "0").code == 0
        assert stage.cluster.live()["spec"]["canary"][0]["predictor"]["minReplicas"] == 1
        assert stage.run("canary", "--percent", "30").code == 0
        assert stage.cluster.live()["spec"]["canary"][0]["trafficPercent"] == 30
        refused = stage.run("canary", "--image", "cosyserve:3", "--percent", "30")
        assert "another canary is under way" in refused.err

    def test_promoting_rolls_the_stable_one_and_then_takes_the_canary_away(self, stage: Stage) -> None:
        assert stage.run("canary", "--image", "cosyserve:2", "--percent", "20").code == 0
        outcome = stage.run("promote")
        assert outcome.code == 0, outcome.err
        spec = stage.cluster.live()["spec"]
        assert "canary" not in spec
        assert spec["predictor"]["containers"][0]["image"] == "cosyserve:2"
        assert (spec["predictor"]["minReplicas"], spec["predictor"]["maxReplicas"]) == (2, 4)
        assert "name" not in spec["predictor"]
        canaries = [len(write.body["spec"].get("canary", [])) for write in stage.cluster.written()]
        assert canaries == [1, 1, 0]
        assert "nothing to promote" in stage.run("promote").out
        assert "--undo" in stage.run("rollback").out
        assert stage.run("rollback", "--undo").code == 0
        assert stage.image == "cosyserve:1"

    def test_rolling_back_takes_the_canary_away(self, stage: Stage) -> None:
        assert stage.run("canary", "--image", "cosyserve:2", "--percent", "20").code == 0
        assert stage.run("rollback").code == 0
        assert "canary" not in stage.cluster.live()["spec"]
        assert stage.image == "cosyserve:1"
        assert "nothing to roll back" in stage.run("rollback").out

    def test_rolling_back_a_promotion_that_was_cut_off_restores_the_stable_one(self, stage: Stage) -> None:
        assert stage.run("canary", "--image", "cosyserve:2", "--percent", "20").code == 0
        running = stage.start("promote")
        running.wait_line("waiting for a rolled stable predictor")
        running.kill()
        assert stage.image == "cosyserve:2"
        outcome = stage.run("rollback")
        assert outcome.code == 0, outcome.err
        assert stage.image == "cosyserve:1"
        assert "canary" not in stage.cluster.live()["spec"]

    def test_a_deployment_that_does_not_progress_fails_the_deploy(self, stage: Stage) -> None:
        changed = manifest("cosyserve:broken", mode="Standard", maxReplicas=4, minReplicas=2)
        outcome = stage.run("deploy", "-f", stage.file(changed))
        assert outcome.code == 1
        assert "ProgressDeadlineExceeded" in outcome.err
        assert stage.run("rollback").code == 0
        assert stage.image == "cosyserve:1"

    def test_analysis_is_refused(self, stage: Stage) -> None:
        assert "only Knative mode gives" in stage.run("watch").err

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (manifest(mode="RawDeployment"), f"needs the annotation {MODE}: Standard"),
            (manifest(mode="Standard", containers=[{"image": "cosyserve:1"}]), "or STORAGE_URI in its first container"),
            (manifest(mode="Standard", minReplicas=0), "with minReplicas 0 KServe gives a canary no pod"),
        ],
    )
    def test_what_kserve_would_refuse_is_told_beforehand(self, tmp_path: Path, document: dict, message: str) -> None:
        with Stage(tmp_path) as stage:
            stage.live(document)
            outcome = stage.run("canary", "--image", "cosyserve:2", "--percent", "10")
            assert outcome.code == 1
            assert message in outcome.err
            assert not stage.cluster.writes
