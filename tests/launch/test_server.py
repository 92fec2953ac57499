"""What cannot start says so in a sentence that tells what to do; what was started is stopped."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest

from api.auth import KeyRing
from api.keyring import KEYS, KEYS_FILE, entry, new_key
from launch import demo, serve
from launch.server import LaunchError, Server, address, check, free_port
from launch.terminal import ProgressLine, run
from models.config import EMBEDDED


def test_a_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"Port {port} .* choose another one with PORT="):
            check("127.0.0.1", port)


def test_a_busy_grpc_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("GRPC_PORT", str(port))
        with pytest.raises(LaunchError, match=rf"Port {port} .* choose another one with GRPC_PORT="):
            check("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("port", "host", "sentence"),
    [
        ("tcp://10.0.0.1:8081", "", "GRPC_PORT=tcp://10.0.0.1:8081 is not a port"),
        ("8081", "no such host", "GRPC_HOST=no such host is not an address"),
        ("8081", "tcp://127.0.0.1", "GRPC_HOST=tcp://127.0.0.1 is not an address"),
        ("8081", "[::1]", "GRPC_HOST=.* is not an address"),
        ("8081", "192.0.2.1", r"Port 8081 on 192\.0\.2\.1 cannot be used"),
        ("{port}", "", "Port .* of HTTP and of gRPC"),
    ],
)
def test_a_grpc_address_that_is_none_is_named(
    port: str, host: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    http_port = free_port()
    monkeypatch.setenv("GRPC_PORT", port.format(port=http_port))
    monkeypatch.setenv("GRPC_HOST", host)
    with pytest.raises(LaunchError, match=sentence):
        check("127.0.0.1", http_port)


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(host: str, port: int, **options: object) -> list[tuple]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (2, 1)]

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("launch.server.socket.getaddrinfo", both)
        with pytest.raises(LaunchError, match=r"Port .* on two cannot be used"):
            check("two", taken.getsockname()[1])


def test_http_and_grpc_may_have_one_port_at_different_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("GRPC_PORT", str(port))
    monkeypatch.setenv("GRPC_HOST", "127.0.0.2")
    check("127.0.0.1", port)
    monkeypatch.setenv("GRPC_HOST", "0.0.0.0")
    with pytest.raises(LaunchError, match="of HTTP and of gRPC"):
        check("127.0.0.1", port)


@pytest.mark.parametrize("host", ["", "localhost", "0.0.0.0"])
def test_a_grpc_address_that_is_one_is_taken(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_PORT", str(free_port()))
    monkeypatch.setenv("GRPC_HOST", host)
    monkeypatch.setenv("COSYSERVE_ALLOW_OPEN", "1")
    check("127.0.0.1", 0)


@pytest.mark.parametrize(("host", "grpc_host"), [("0.0.0.0", ""), ("127.0.0.1", "0.0.0.0")])
def test_a_server_open_to_everybody_is_refused_unless_somebody_said_so(
    host: str, grpc_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_PORT", str(free_port()))
    monkeypatch.setenv("GRPC_HOST", grpc_host)
    with pytest.raises(LaunchError, match=r"Listening on 0\.0\.0\.0 without API keys is refused"):
        check(host, 0)
    monkeypatch.setenv("COSYSERVE_ALLOW_OPEN", "1")
    check(host, 0)


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=10 * 2**20))
    with pytest.raises(LaunchError, match=r"Only 10 MB are free .* free at least"):
        check("127.0.0.1", 0)


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_folder_that_is_no_model_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_DIR", str(tmp_path / name))
    with pytest.raises(LaunchError, match=str(tmp_path / name)):
        check("127.0.0.1", 0)


@pytest.mark.parametrize(("name", "value"), [("PORT", "abc"), ("PORT", "99999"), ("HOST", "no such host")])
def test_an_address_that_is_none_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=f"{name}={value}"):
        address(3000)


def test_a_host_name_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "localhost")
    monkeypatch.setenv("PORT", "")
    assert address(3000) == ("127.0.0.1", 3000)


@pytest.mark.parametrize(
    "name", ["llm.pt", "flow.pt", "hift.pt", "campplus.onnx", "speech_tokenizer_v2.onnx", "phonemes.json"]
)
def test_a_missing_model_file_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EMBEDDED, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    monkeypatch.setenv("MODEL_DIR", str(tmp_path / "model"))
    with pytest.raises(LaunchError, match=name):
        check("127.0.0.1", 0)


@pytest.mark.parametrize("name", ["flow.pt", "campplus.onnx", "phonemes.json"])
def test_a_damaged_file_stops_the_start_with_a_sentence_that_names_it(name: str, tmp_path: Path) -> None:
    shutil.copytree(EMBEDDED, tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(b"not a checkpoint")
    with Server(env={"MODEL_DIR": str(tmp_path / "model")}) as broken, pytest.raises(LaunchError, match=name):
        broken.wait_ready(timeout=60)


def test_stopping_in_the_middle_of_a_stream_kills_every_process() -> None:
    with Server() as running:
        running.wait_ready(timeout=120)
        assert running.process is not None
        processes = psutil.Process(running.process.pid).children(recursive=True)
        body = {"input": "A long story begins with a word. " * 40, "response_format": "pcm"}
        with httpx.stream("POST", running.url + "/v1/audio/speech", json=body, timeout=60) as response:
            next(response.iter_raw())
            assert running.stop(grace=0) is None
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_stopping_leaves_no_process_behind() -> None:
    with Server() as running:
        running.wait_ready(timeout=120)
        assert running.process is not None
        processes = psutil.Process(running.process.pid).children(recursive=True)
        assert len(processes) >= 3
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
    assert not running._scratch.exists()


def test_the_demo_speaks_and_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setenv("TEXT", "Good evening.")
    assert run("demo", demo.demo) == 0
    report = capsys.readouterr().out
    for line in ("text", "time to first audio", "duration", "real-time factor", "out/demo.wav"):
        assert line in report
    assert (tmp_path / "out" / "demo.wav").stat().st_size > 24_000


def test_the_demo_names_the_voices_it_could_have_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICE", "nobody")
    assert run("demo", demo.demo) == 1
    assert "cosy" in capsys.readouterr().err


def test_a_server_that_ends_by_itself_leaves_its_log_and_the_one_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class ShortLived(Server):
        words = "first words"

        def start(self) -> None:
            with self.log.open("wb") as log:
                self.process = subprocess.Popen([sys.executable, "-c", f"print({self.words!r})"], stdout=log)

        def wait_ready(self, *given: object, **named: object) -> None:
            """It is not asked for anything."""

    monkeypatch.setattr(serve, "Server", ShortLived)
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    port, grpc_port = free_port(), free_port()
    monkeypatch.setenv("PORT", str(port))
    log = tmp_path / "out" / f"serve-{port}.log"
    assert run("serve", serve.serve) == 1
    told = capsys.readouterr()
    assert f"log      {log}\n" in told.out
    assert "grpc" not in told.out
    assert "The service stopped:\nfirst words" in told.err
    monkeypatch.setattr(ShortLived, "words", "last words")
    monkeypatch.setenv("GRPC_PORT", str(grpc_port))
    assert run("serve", serve.serve) == 1
    assert f"grpc     127.0.0.1:{grpc_port}\n" in capsys.readouterr().out
    assert log.read_text() == "last words\n"
    assert Path(f"{log}.1").read_text() == "first words\n"


def test_a_log_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("no folder")
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    monkeypatch.setenv("PORT", str(free_port()))
    with pytest.raises(LaunchError, match=r"log cannot be written to .*out/serve-\d+\.log"):
        serve.serve(ProgressLine())


def test_a_wait_that_fails_stops_what_was_started() -> None:
    with pytest.raises(LaunchError, match="not ready after"), Server() as slow:
        slow.wait_ready(timeout=0.0)
    assert slow.process is None


def test_the_demos_server_asks_for_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys"
    path.write_text(entry("a", new_key()))
    monkeypatch.setenv(KEYS, entry("b", new_key()))
    monkeypatch.setenv(KEYS_FILE, str(path))
    env = None

    class Started(Server):
        def start(self) -> None:
            nonlocal env
            env = self._env
            raise LaunchError("enough")

    monkeypatch.setattr(demo, "Server", Started)
    assert run("demo", demo.demo) == 1
    assert env is not None
    assert KeyRing.from_environment(env) is None
    assert env["PATH"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:8"),
        ("::", "http://[::1]:8"),
        ("0.0.0.0", "http://127.0.0.1:8"),
        ("127.0.0.2", "http://127.0.0.2:8"),
    ],
)
def test_a_server_has_an_address_of_either_family(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", host)
    assert address(8) == (host, 8)
    assert Server(8, host).url == url
