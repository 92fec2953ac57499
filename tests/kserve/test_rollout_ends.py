"""How a rollout command ends when what is around it breaks: its log, its process, and the files it is given."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kserve.rollout_command import SCRIPT, wait_until
from tests.kserve.rollout_stage import FIRST, NAME, SECOND, THIRD, Stage, manifest


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as running:
        yield running


def test_a_full_disk_under_the_log_does_not_keep_a_failing_canary(stage: Stage) -> None:
    stage.live()
    stage.canary()
    stage.prometheus.change(SECOND, ttfa=1.6)
    outcome = stage.start("watch", log=Path("/dev/full")).wait()
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "rolled back: P95 TTFA is 1.600 s" in outcome.err
    assert (stage.image, stage.percent, stage.shares()) == ("cosyserve:1", None, {THIRD: 100})


def test_a_log_whose_reader_goes_does_not_keep_a_failing_canary(stage: Stage) -> None:
    stage.live()
    stage.canary()
    pipe = stage.folder / "pipe"
    os.mkfifo(pipe)
    ends = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), os.open(pipe, os.O_WRONLY)
    running = stage.start("watch", "--interval", "60", log=pipe)
    wait_until(lambda: bool(select.select(ends[:1], [], [], 0)[0]), "a line in the pipe")
    for end in ends:
        os.close(end)
    stage.prometheus.change(SECOND, ttfa=1.6)
    outcome = running.wait()
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "rolled back: P95 TTFA is 1.600 s" in outcome.err
    assert (stage.image, stage.percent) == ("cosyserve:1", None)


def test_a_line_that_the_terminal_cannot_show_ends_nothing(stage: Stage) -> None:
    command = [sys.executable, str(SCRIPT), "delete", "--name", NAME, "--namespace", "café"]
    command += ["--kubeconfig", str(stage.cluster.kubeconfig)]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=ascii_only, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "in namespace caf\\xe9" in done.stdout


def test_a_status_that_cannot_be_written_is_a_failure_in_one_sentence(stage: Stage) -> None:
    stage.live()
    command = [sys.executable, str(SCRIPT), "status", "--name", NAME, "--kubeconfig", str(stage.cluster.kubeconfig)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    sentence = "rollout.py: the status could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, sentence)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_as_ctrl_c_does(stage: Stage, number: signal.Signals) -> None:
    stage.live()
    stage.canary(percent=25)
    running = stage.start("watch", "--interval", "60")
    running.wait_line(f"25 % canary {SECOND}")
    outcome = running.interrupt(number)
    assert outcome.code == 1
    assert "The canary stays where it is: go on with watch" in outcome.err
    assert stage.shares() == {FIRST: 75, SECOND: 25}


def test_a_signal_during_an_automatic_rollback_says_how_to_finish_it(stage: Stage) -> None:
    stage.live()
    stage.canary(percent=25)
    stage.prometheus.change(SECOND, ttfa=1.6)
    stage.cluster.delays.start = 60  # the restored revision never gets ready
    running = stage.start("watch", timeout=60)
    running.wait_line("the template of before is back")
    outcome = running.interrupt(signal.SIGTERM)
    assert outcome.code == 1
    assert "rolling back was interrupted: run rollback again" in outcome.err


def test_nohup_keeps_a_command_running(stage: Stage) -> None:
    stage.live()
    stage.canary(percent=25)
    running = stage.start("watch", "--interval", "60", ignored=signal.SIGHUP)
    running.wait_line(f"25 % canary {SECOND}")
    running.signal(signal.SIGHUP)
    stage.prometheus.change(SECOND, ttfa=1.6)
    assert "rolled back: P95 TTFA is 1.600 s" in running.wait().err


def test_an_exchange_ends_while_the_name_is_being_resolved() -> None:
    script = "import socket, sys, time; socket.getaddrinfo = lambda *name, **options: time.sleep(60)\n"
    script += "sys.path[0] = sys.argv[1]; import httpx; from exchange import exchange\n"
    script += "try: exchange('GET', 'http://prometheus', 0.3)\nexcept httpx.ReadTimeout as error: print(error)"
    command = [sys.executable, "-c", script, str(SCRIPT.parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.stdout == "no whole answer after 0.3 s\n", done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--error-rate", "nan"),
        ("--error-excess", "50"),
        ("--error-rate", "-0.1"),
        ("--continuity", "99"),
        ("--continuity-ratio", "0"),
        ("--ttfa-seconds", "nan"),
        ("--ttfa-ratio", "inf"),
        ("--rtf", "nan"),
        ("--rtf-ratio", "-1"),
        ("--min-requests", "nan"),
        ("--min-requests", "0"),
        ("--interval", "nan"),
        ("--steps", "5,x"),
    ],
)
def test_a_bound_that_would_judge_nothing_is_refused(arguments: tuple[str, str]) -> None:
    command = [sys.executable, str(SCRIPT), "watch", "--name", NAME, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"argument {arguments[0]}: " in done.stderr
    assert "invalid _" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"a: [b",
        b"\xff\xfe\x00",
        b"\0",
        b"[1, 2]",
        b"text",
        b"contexts: 5",
        b"contexts: [{name: a}]",
        b"[" * 20_000,
        None,
    ],
)
def test_a_kubeconfig_that_is_none_is_one_sentence(stage: Stage, content: bytes | None) -> None:
    file = stage.folder / "kubeconfig-broken"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    outcome = stage.run("status", "--kubeconfig", str(file))
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "the kubeconfig is of no use" in outcome.err


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": 123}, "metadata.name is no string"),
        ({"name": ["a"]}, "metadata.name is no string"),
        ({"namespace": 5}, "metadata.namespace is no string"),
        ({"annotations": ["a"]}, "metadata.annotations is no mapping of strings"),
        ({"annotations": "a"}, "metadata.annotations is no mapping of strings"),
        ({"annotations": {"a": True}}, "metadata.annotations is no mapping of strings"),
        ({"annotations": {5: "a", "b": "c"}}, "metadata.annotations is no mapping of strings"),
        ({"namespace": 0}, "metadata.namespace is no string"),
        ({"labels": 0}, "metadata.labels is no mapping of strings"),
        ({"labels": ["a"]}, "metadata.labels is no mapping of strings"),
        ({"labels": {"version": 2}}, "metadata.labels is no mapping of strings"),
    ],
)
def test_metadata_of_the_wrong_kind_is_named(stage: Stage, metadata: dict, message: str) -> None:
    document = manifest()
    document["metadata"] |= metadata
    outcome = stage.run("deploy", "-f", stage.file(document))
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert message in outcome.err
    assert not stage.cluster.written()


def test_metadata_may_be_left_empty(stage: Stage) -> None:
    document = manifest()
    document["metadata"] |= {"labels": None, "namespace": None}
    assert stage.run("deploy", "-f", "-", stdin=yaml.safe_dump(document)).code == 0


@pytest.mark.parametrize("command", ["deploy", "warm"])
def test_a_file_that_is_nested_without_end_is_one_sentence(stage: Stage, command: str) -> None:
    file = stage.folder / "nested"
    file.write_text("[" * 200_000)
    outcome = stage.run(command, *(("-f",) if command == "deploy" else ("--url", "http://x", "--body")), str(file))
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert str(file) in outcome.err


@pytest.mark.parametrize(
    ("url", "more"),
    [("http://x", ("--host", "é")), ("http://[::1", ()), ("http://x\x7f", ()), ("http://x", ("--text", "\udcff"))],
)
def test_a_request_that_cannot_be_made_is_one_sentence(stage: Stage, url: str, more: tuple[str, ...]) -> None:
    outcome = stage.run("warm", "--url", url, *more)
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "no request can be made of" in outcome.err
