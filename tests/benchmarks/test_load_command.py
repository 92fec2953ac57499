"""The load generator's options, and what it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.load import main
from tests.benchmarks.scripted_speech import PCM, RATE, Answer, Result, run_load, scripted

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "load.py"


@pytest.fixture
def load(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return partial(run_load, tmp_path, capsys)


@pytest.mark.parametrize(
    ("arguments", "content_type", "rate", "assumed"),
    [
        ((), PCM, RATE, False),
        ((), "audio/pcm", 24_000, True),
        (("--sample-rate", "16000"), "audio/pcm", 16_000, False),
    ],
)
def test_an_assumed_rate_is_said(load, arguments: tuple[str, ...], content_type: str, rate: int, assumed: bool) -> None:
    with scripted(Answer([(0.0, 0.6)], content_type)) as server:
        result = load(server.url, "--concurrency", "1", "--requests", "1", *arguments)
    (level,) = result.levels
    assert level["audio_s"]["mean"] == pytest.approx(0.6 * RATE / rate)
    assert level["rate_assumed"] is assumed
    assert ("ASSUMED: 24000 Hz" in result.out) is assumed


def test_the_request_is_what_the_options_say(load, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "Grüezi."}\n', "utf-8")
    options = ["--model", "tts-1", "--voice", "alloy", "--format", "wav", "--texts", str(texts)]
    with scripted() as server:
        load(
            f"{server.url}/v1/", *options, "--extra", '{"stream": null, "stream_format": "audio"}', "--requests", "1",
            "--concurrency", "1",
        )  # fmt: skip
    assert server.bodies[0] == {
        "model": "tts-1",
        "voice": "alloy",
        "input": "Grüezi.",
        "response_format": "wav",
        "stream_format": "audio",
    }
    assert "Authorization" not in server.headers[0]


def test_a_recording_in_the_request_is_read_from_a_file_and_not_printed(load, tmp_path: Path) -> None:
    recording = "data:audio/wav;base64," + 100_000 * "A"
    (tmp_path / "extra.json").write_text(json.dumps({"ref_audio": recording, "ref_text": "Hello."}))
    with scripted() as server:
        result = load(server.url, "--extra", f"@{tmp_path}/extra.json", "--requests", "1", "--concurrency", "1")
    assert server.bodies[0]["ref_audio"] == recording
    assert "(100022 characters)" in result.out
    assert len(result.out) < 2000
    assert (tmp_path / "load.json").stat().st_size < 5000


@pytest.mark.parametrize("given", ["option", "environment"])
def test_the_key_is_sent_and_never_printed(load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str) -> None:
    key = "sk-abcdefgh"
    refusal = Answer(status=401, body=b'{"error": {"message": "wrong key sk-abcdefgh"}}')
    options = ["--api-key", key] if given == "option" else []
    if given == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with scripted(Answer(), refusal) as server:
        result = load(f"{server.url}?token={key}", *options, "--requests", "2", "--concurrency", "1")
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {key}"}
    assert "wrong key ***" in result.out
    assert key not in result.out + result.err + (tmp_path / "load.json").read_text()


def test_the_chart_is_drawn(load, tmp_path: Path) -> None:
    chart = tmp_path / "load.png"
    with scripted() as server:
        load(server.url, "--concurrency", "1,2", "--rate", "50", "--requests", "4", "--plot", str(chart))
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_chart_without_matplotlib_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with scripted() as server, pytest.raises(SystemExit):
        main([server.url, "--plot", str(tmp_path / "load.png")])
    assert server.bodies == []
    assert "needs matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["localhost:3000"], "URL must be"),
        (["http://me:secret@localhost"], "URL must be"),
        (["http://localhost", "--concurrency", "0"], "not above 0"),
        (["http://localhost", "--rate", "nan"], "not above 0"),
        (["http://localhost", "--rate", "fast"], "--rate"),
        (["http://localhost", "--duration", "5", "--requests", "5"], "not allowed with"),
        (["http://localhost", "--extra", "[1]"], "no JSON object"),
        (["http://localhost", "--extra", "{"], "--extra"),
        (["http://localhost", "--extra", "@missing.json"], "missing.json"),
        (["http://localhost", "--texts", "missing.txt"], "missing.txt"),
        (["http://localhost", "--json", "missing/load.json"], "cannot be written"),
    ],
)
def test_wrong_options_are_said_before_anything_is_asked(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert "secret" not in said


def test_an_interruption_prints_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "load.json"
    with scripted(Answer([(0.05, 0.1)])) as server:
        command = [sys.executable, str(SCRIPT), server.url, "--concurrency", "2,4", "--duration", "60"]
        process = subprocess.Popen(
            [*command, "--json", str(path)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        began = time.monotonic()
        while len(server.bodies) < 10 and time.monotonic() - began < 30:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted: this is what was measured until then" in out
    (level,) = json.loads(path.read_text())["levels"]
    assert level["ok"] >= 7
    assert level["unfinished"] == 2
    assert "interrupted with 2 requests in flight" in out
