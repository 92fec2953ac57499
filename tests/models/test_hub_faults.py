"""What a hub says wrongly, does not say, or says to two pulls at once, harms no folder and ends in one sentence."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models import hub as hubs
from models.config import STAGING
from models.hub import HuggingFace
from models.manifest import Manifest, verify, write_manifest
from models.pull import LOCK, pull
from tests.models.fake_hub import REPO, FakeHub
from tests.models.test_hub import LONG, MEGABYTE, ROOT, client, code_of, command, environment, is_no_model, last_line
from tests.models.test_hub import hub as hub
from tests.models.test_hub import source as source


def test_two_pulls_into_one_folder_do_not_meet(source: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.files["llm.pt"] = os.urandom(LONG)
    hub.stall_at["llm.pt"] = 15 * MEGABYTE
    root = tmp_path / "model"
    arguments = command(source, "pull", REPO, "--to", str(root))
    first = subprocess.Popen(arguments, cwd=ROOT, env=environment(hub), stderr=subprocess.PIPE, text=True)
    assert hub.stalled.wait(60), first.poll()
    second = subprocess.run(arguments, cwd=ROOT, env=environment(hub), capture_output=True, text=True, timeout=40)
    assert second.returncode == 1
    assert last_line(second.stderr) == f"error: another pull is at work in {root}"
    assert is_no_model(root)
    hub.stall_at.clear()
    hub.released.set()
    errors = first.communicate(timeout=60)[1]
    assert first.returncode == 0, errors
    manifest = pull(client(source, hub), REPO, root)
    verify(root, manifest)
    assert not (root / STAGING).exists()


def test_the_lock_outlives_the_pull(hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "model"
    pull(HuggingFace(hub.url), REPO, root)
    with (root / LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another pull is at work" in code_of(lambda: pull(HuggingFace(hub.url), REPO, root))[1]


def test_a_pull_of_something_else_that_ended_meanwhile_is_seen(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "model"

    def late(file: object, operation: int) -> None:
        write_manifest(root, Manifest(None, {}, "huggingface", REPO, "older"))

    monkeypatch.setattr("models.pull.fcntl.flock", late)
    code, message = code_of(lambda: pull(HuggingFace(hub.url), REPO, root))
    assert (code, "another model or revision" in message) == ("target_not_usable", True)
    assert not hub.served


def test_a_fault_of_this_program_is_not_called_the_hubs(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise TypeError("ours")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", broken)
    with pytest.raises(TypeError, match="ours"):
        pull(HuggingFace(hub.url), REPO, tmp_path / "model")


def test_a_file_system_without_locks_is_told_and_no_obstacle(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("models.pull.fcntl.flock", refuse)
    lines: list[str] = []
    pull(HuggingFace(hub.url), REPO, tmp_path / "model", report=lines.append)
    assert "without locks" in lines[0]


def test_a_listing_that_never_comes_is_not_waited_for(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "LISTING_SECONDS", 0.3)
    hub.silent = True
    began = time.monotonic()
    assert code_of(lambda: pull(HuggingFace(hub.url), REPO, tmp_path / "model"))[0] == "hub_unreachable"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("headers", [{"Retry-After": "3600"}, {"RateLimit": '"resolvers";r=0;t=3000'}])
def test_a_hub_that_asks_for_an_hour_is_left(hub: FakeHub, tmp_path: Path, headers: dict[str, str]) -> None:
    hub.limited = headers
    done = subprocess.run(
        command("huggingface", "pull", REPO, "--to", str(tmp_path / "model")),
        cwd=ROOT,
        env=environment(hub),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert last_line(done.stderr) == f"error: {hub.url} answered 429: try again later, the pull continues"


@pytest.mark.parametrize("quota", [{}, {"RateLimit": '"resolvers";r=5;t=3000'}])
def test_a_hub_that_asks_for_a_moment_is_asked_again(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: dict[str, str]
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        hub.limited = {}

    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", sleep)
    hub.limited = {"Retry-After": "50", **quota}
    pull(HuggingFace(hub.url), REPO, tmp_path / "model")
    assert waits == [51]


@pytest.mark.parametrize("commit", ["x/../../../../escaped/evil", "../evil", "", None, 7, "c0ffee", ["a"]])
def test_a_commit_that_is_none_is_refused_before_anything_is_written(
    hub: FakeHub, tmp_path: Path, commit: object
) -> None:
    hub.commit = commit
    assert code_of(lambda: pull(HuggingFace(hub.url), REPO, tmp_path / "a" / "b"))[0] == "hub_refused"
    assert not list(tmp_path.iterdir())
    assert not hub.served


def entries(listing: dict) -> list[dict]:
    return listing["siblings"] if "siblings" in listing else listing["Data"]["Files"]


def changed(**values: object) -> Callable[[dict], dict]:
    """Every entry of a listing with these values, in its own spelling; None takes the key out."""

    def edit(listing: dict) -> dict:
        for entry in entries(listing):
            for key, value in values.items():
                for place in (entry, entry.get("lfs", {})):
                    for spelling in {key, key.capitalize()} & set(place):
                        if value is None:
                            del place[spelling]
                        else:
                            place[spelling] = value
        return listing

    return edit


ANY = [
    lambda listing: [1, 2],
    lambda listing: "listing",
    changed(size="abc"),
    changed(size=-5),
    changed(sha256="no hash"),
    changed(sha256=5),
]
OF_HUGGING_FACE = [changed(rfilename=None), changed(size=None), lambda listing: {**listing, "siblings": 5}]
OF_MODEL_SCOPE = [lambda listing: {**listing, "Data": {"Files": [5]}}]


@pytest.mark.parametrize(
    ("source", "edit"),
    [
        *(("huggingface", edit) for edit in ANY + OF_HUGGING_FACE),
        *(("modelscope", edit) for edit in ANY + OF_MODEL_SCOPE),
    ],
    indirect=["source"],
)
def test_a_listing_of_another_kind_is_refused(
    source: str, edit: Callable[[Any], Any], hub: FakeHub, tmp_path: Path
) -> None:
    hub.edit = edit
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "hub_refused"
    assert hub.url in message
    assert not (tmp_path / "model").exists()


def test_a_checksum_in_upper_case_is_the_same(source: str, hub: FakeHub, tmp_path: Path) -> None:
    def upper(listing: dict) -> dict:
        for entry in entries(listing):
            for place, key in ((entry, "Sha256"), (entry, "blobId"), (entry.get("lfs", {}), "sha256")):
                if key in place:
                    place[key] = place[key].upper()
        return listing

    hub.edit = upper
    manifest = pull(client(source, hub), REPO, tmp_path / "model")
    verify(tmp_path / "model", manifest)


@pytest.mark.parametrize("where", ["pipe", "full"])
def test_a_log_that_ends_is_not_the_folders_fault(where: str, hub: FakeHub, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") if where == "pipe" else open("/dev/full", "w") as log:
        done = subprocess.run(
            command("huggingface", "pull", REPO, "--to", str(tmp_path / "model")),
            cwd=ROOT,
            env=environment(hub),
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: stdout cannot be written: ")
    assert len(done.stderr.splitlines()) == 1
