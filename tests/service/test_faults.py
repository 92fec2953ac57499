"""What goes wrong around the real service ends the requests that it touches, and nothing else."""

from __future__ import annotations

import base64
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from launch.server import Server
from models.config import EMBEDDED
from tests.service.conftest import recording

pytestmark = pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="limits of other processes: Linux")

HELLO = {"input": "Good morning.", "seed": 3, "stream": False, "response_format": "pcm"}
LONG = {"input": "The little boat went slowly down the river in the morning. " * 12, "response_format": "pcm"}
ENTRY, ENGINE, ENCODER = "service-name cosyserve", "service-name speech_engine", "service-name prompt_encoder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(EMBEDDED, tmp_path_factory.mktemp("faults") / "model")


@pytest.fixture(scope="module")
def container(folder: Path) -> Iterator[Server]:
    """The service as the image runs it: nobody starts a process that has died again."""
    env = {"BENTOML_CONTAINERIZED": "true", "MODEL_DIR": str(folder), "COSYSERVE_VOICES": str(folder.parent / "voices")}
    with Server(env=env) as running:
        running.wait_ready(timeout=120)
        yield running


def process(server: Server, name: str) -> psutil.Process:
    assert server.process is not None
    children = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = [child for child in children if name in " ".join(child.cmdline())]
    return found


def post(server: Server, body: dict) -> httpx.Response:
    return httpx.post(server.url + "/v1/audio/speech", json=body, timeout=60)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def until(condition: Callable[[], bool], timeout: float) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, "it never came true"
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_model_folder_that_changes_underneath_changes_nothing(container: Server, folder: Path) -> None:
    before = post(container, HELLO)
    assert before.status_code == 200
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")  # in place: what is mapped would be gone
    shutil.rmtree(folder)
    assert post(container, HELLO).content == before.content
    assert post(container, {**HELLO, "ref_audio": recording()}).status_code == 200
    assert container.is_ready()


def test_a_disk_that_is_full_is_told_and_the_saved_voices_stay(container: Server) -> None:
    def save(name: str) -> httpx.Response:
        sample = base64.b64decode(recording().partition(",")[2])
        fields = {"name": name, "consent": "I agree that my voice is used."}
        url = container.url + "/v1/audio/voices"
        return httpx.post(url, data=fields, files={"audio_sample": ("a.wav", sample)}, timeout=60)

    assert save("first").status_code == 201
    entry = process(container, ENTRY)
    limit = entry.rlimit(resource.RLIMIT_FSIZE)
    entry.rlimit(resource.RLIMIT_FSIZE, (20_000, limit[1]))
    try:
        assert code(save("second")) == (507, "voice_store_full")
        assert post(container, {**HELLO, "voice": "first"}).status_code == 200
    finally:
        entry.rlimit(resource.RLIMIT_FSIZE, limit)
    assert save("second").status_code == 201


def test_an_engine_that_gets_no_memory_fails_the_request_and_serves_the_next(container: Server) -> None:
    before = post(container, HELLO)
    engine = process(container, ENGINE)
    limit = engine.rlimit(resource.RLIMIT_DATA)
    engine.rlimit(resource.RLIMIT_DATA, (1, limit[1]))
    try:
        assert code(post(container, {**LONG, "stream": False, "input": LONG["input"] * 5})) == (500, "engine_error")
    finally:
        engine.rlimit(resource.RLIMIT_DATA, limit)
    assert post(container, HELLO).content == before.content


def test_an_engine_that_is_killed_ends_its_streams_and_the_container(container: Server) -> None:
    assert container.process is not None
    family = psutil.Process(container.process.pid).children(recursive=True)
    with (
        ThreadPoolExecutor(1) as pool,
        httpx.stream("POST", container.url + "/v1/audio/speech", json=LONG, timeout=60) as stream,
    ):
        chunks = stream.iter_raw()
        next(chunks)
        process(container, ENGINE).send_signal(signal.SIGKILL)
        following = pool.submit(post, container, HELLO)
        assert until(lambda: not container.is_ready(), 5) < 1
        with pytest.raises(httpx.RemoteProtocolError):  # never a clean end
            list(chunks)
        assert code(following.result()) in ((503, "engine_unavailable"), (500, "engine_error"))
    assert container.process.wait(30) == 1
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def test_a_prompt_encoder_that_is_killed_comes_back_and_speech_without_it_goes_on(server: Server) -> None:
    encoder = process(server, ENCODER)
    encoder.kill()
    assert until(lambda: not server.is_ready(), 5) < 1
    new = {**HELLO, "ref_audio": recording(seconds=2.6)}  # one that no test before has had encoded: those are kept
    assert code(post(server, new)) == (503, "engine_unavailable")
    assert post(server, HELLO).status_code == 200
    until(server.is_ready, 60)
    assert process(server, ENCODER).pid != encoder.pid
    assert post(server, new).status_code == 200
