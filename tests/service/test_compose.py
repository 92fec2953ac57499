"""Two real services behind the nginx of deploy/compose: one dies, both are restarted, and no caller has to know."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import psutil
import pytest
from websockets.asyncio.client import connect

from api.keyring import entry, new_key
from api.oip.messages import SERVICE, message
from launch.server import Server, free_port
from tests.api.live_server import Session
from tests.service.conftest import recording
from tests.service.nginx import Nginx, needs_nginx
from tests.service.oip_server import LONG, gauge, until

pytestmark = [pytest.mark.compose, needs_nginx]

KEY = new_key()
BEARER = {"Authorization": f"Bearer {KEY}"}
FAIL_TIMEOUT = 5.0  # of nginx.conf: so long a server that failed is not asked
SHORT = {"input": "Good morning, how are you?", "response_format": "pcm", "seed": 4}


@dataclass
class Site:
    """Two services that share a folder of voices and a file of keys, and nginx."""

    folder: Path
    ports: list[tuple[int, int]] = field(default_factory=lambda: [(free_port(), free_port()) for _ in range(2)])
    services: list[Server] = field(default_factory=list)
    nginx: Nginx = field(init=False)

    def __post_init__(self) -> None:
        (self.folder / "keys").write_text(f"{entry('caller', KEY)} scopes=speech,voices")
        servers = {
            f"tts-{number}:{there}": port
            for number, ports in enumerate(self.ports, 1)
            for there, port in zip((8080, 8081), ports, strict=True)
        }
        self.nginx = Nginx(servers, self.folder)
        self.services = [self.service(0), self.service(1)]

    def service(self, index: int) -> Server:
        http, grpc_port = self.ports[index]
        env = {
            "COSYSERVE_MAX_TTFA": "none",  # one server has the load of two for a while, and who is let in is not tested
            "GRPC_PORT": str(grpc_port),
            "INFERENCE_SERVICE_NAME": "narrator",
            "COSYSERVE_VOICES": str(self.folder / "voices"),
            "COSYSERVE_API_KEYS_FILE": str(self.folder / "keys"),
        }
        return Server(http, env=env, log=self.folder / f"tts-{index + 1}.log")

    def addresses(self, index: int) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self.ports[index])

    def begin_again(self, index: int) -> None:
        """Start a service that is down, and return when it is ready and nginx asks it again."""
        self.services[index] = self.service(index)
        self.services[index].start()
        self.services[index].wait_ready(timeout=120)
        time.sleep(FAIL_TIMEOUT + 0.5)

    def kill(self, index: int) -> None:
        """SIGKILL to all of its processes at once, as when a container dies."""
        process = self.services[index].process
        assert process is not None
        parent = psutil.Process(process.pid)
        for one in [*parent.children(recursive=True), parent]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "voices").mkdir()
    site = Site(folder)
    try:
        for service in site.services:
            service.start()
        for service in site.services:
            service.wait_ready(timeout=120)
        with site.nginx:
            yield site
    finally:
        for service in site.services:
            service.stop()


def new_id() -> dict[str, str]:
    return {**BEARER, "X-Request-Id": uuid.uuid4().hex}


@dataclass
class Outcome:
    kind: str
    request_id: str
    began: float
    problem: str | None


class Load:
    """Requests through nginx, one after the other in each of several threads, until the block ends."""

    def __init__(self, site: Site) -> None:
        self._site, self._stop = site, threading.Event()
        self.outcomes: list[Outcome] = []
        kinds: list[Callable[[httpx.Client, dict[str, str]], str | None]] = [self._speech, self._speech, self._write]
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in (*kinds, self._infer)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, kind: Callable[[httpx.Client, dict[str, str]], str | None]) -> None:
        with httpx.Client(base_url=self._site.nginx.url, timeout=60) as http:
            while not self._stop.is_set():
                headers, began = new_id(), time.monotonic()
                try:
                    problem = kind(http, headers)
                except (httpx.HTTPError, grpc.RpcError) as error:
                    problem = repr(error)
                self.outcomes.append(Outcome(kind.__name__, headers["X-Request-Id"], began, problem))
                time.sleep(0.1)

    def _speech(self, http: httpx.Client, headers: dict[str, str]) -> str | None:
        answer = http.post("/v1/audio/speech", json=SHORT, headers=headers)
        return None if answer.status_code == 200 and len(answer.content) > 40_000 else answer.text[:200]

    def _write(self, http: httpx.Client, headers: dict[str, str]) -> str | None:
        """A pronunciation dictionary, made and deleted."""
        body = {"name": headers["X-Request-Id"], "pronunciations": [{"text": "a", "replace": "b"}]}
        made = http.post("/v1/pronunciation-dictionaries", json=body, headers=headers)
        if made.status_code != 201:
            return made.text[:200]
        gone = http.delete(f"/v1/pronunciation-dictionaries/{made.json()['id']}", headers=headers)
        return None if gone.is_success else gone.text[:200]

    def _infer(self, http: httpx.Client, headers: dict[str, str]) -> str | None:
        samples = inferred(self._site.nginx.grpc_address, "Hello.", headers["X-Request-Id"])
        return None if len(samples) > 8000 else "no audio"


def inferred(address: str, text: str, request_id: str = "") -> np.ndarray:
    """A wav file `[L]` uint8, by gRPC."""
    asked = message("ModelInferRequest")(model_name="narrator")
    asked.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(text.encode())
    asked.inputs.add(name="seed", datatype="INT64", shape=[1]).contents.int64_contents.append(4)
    metadata = [("authorization", BEARER["Authorization"]), *([("x-request-id", request_id)] if request_id else [])]
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            lambda value: value.SerializeToString(),
            message("ModelInferResponse").FromString,
        )
        answer = call(asked, metadata=metadata, timeout=60)
    audio = next(output for output in answer.outputs if output.name == "audio")
    return np.array(audio.contents.uint_contents, np.uint8)


@contextmanager
def stream(url: str, text: str, headers: dict[str, str] | None = None) -> Iterator[httpx.Response]:
    body = {**SHORT, "input": text}
    with httpx.stream("POST", f"{url}/v1/audio/speech", json=body, headers=headers or new_id(), timeout=60) as answer:
        assert answer.status_code == 200
        yield answer


def test_what_one_saves_the_other_speaks_with(site: Site) -> None:
    first, second = site.services
    data = {"name": "shared", "consent": "mine", "ref_text": "Something that is hummed."}
    file = base64.b64decode(recording().partition(",")[2])
    files = {"audio_sample": ("hum.wav", file, "audio/wav")}
    made = httpx.post(f"{first.url}/v1/audio/voices", data=data, files=files, headers=BEARER, timeout=60)
    assert made.status_code == 201, made.text
    began = time.monotonic()
    spoken = httpx.post(f"{second.url}/v1/audio/speech", json={**SHORT, "voice": "shared"}, headers=BEARER, timeout=60)
    assert spoken.status_code == 200, spoken.text
    assert time.monotonic() - began < 5


def test_audio_is_not_held_back(site: Site) -> None:
    """Time to first audio, the other way round each time; and a stream's beginning long before its end."""

    def first_audio(url: str) -> float:
        began = time.perf_counter()
        with stream(url, SHORT["input"]) as answer:  # type: ignore[arg-type]
            next(answer.iter_raw())
            return time.perf_counter() - began

    urls = (site.services[0].url, site.nginx.url)
    times: dict[str, list[float]] = {url: [] for url in urls}
    for turn in range(6):
        for url in urls[:: 1 if turn % 2 else -1]:
            times[url].append(first_audio(url))
    direct, through = (statistics.median(times[url]) for url in urls)
    print(f"time to first audio through nginx / direct: {through / direct:.2f} ({direct * 1000:.0f} ms direct)")
    assert through < 1.5 * direct + 0.05
    began = time.perf_counter()
    with stream(site.nginx.url, LONG) as answer:
        chunks = [time.perf_counter() - began for _ in answer.iter_raw()]
    assert len(chunks) > 10
    assert chunks[0] < 0.5 * chunks[-1]


def test_grpc_and_websockets_go_through(site: Site) -> None:
    direct = inferred(f"127.0.0.1:{site.ports[0][1]}", "Good morning.")
    through = inferred(site.nginx.grpc_address, "Good morning.")
    np.testing.assert_array_equal(direct, through)
    assert len(direct) > 8000

    async def talk() -> Session:
        url = site.nginx.url.replace("http", "ws", 1) + "/v1/audio/speech/stream"
        async with connect(url, additional_headers=BEARER) as socket:
            session = Session(socket)
            await session.say("session.config", format="pcm")
            await session.say("input.text", text="Hello there. And goodbye.")
            await session.say("input.done")
            await session.until("session.done")
            return session

    session = asyncio.run(talk())
    assert [sentence.done["finish_reason"] for sentence in session.sentences] == ["stop", "stop"]
    assert all(len(sentence.audio) > 8000 for sentence in session.sentences)


def test_ids_limits_and_logs(site: Site) -> None:
    with httpx.Client(base_url=site.nginx.url, timeout=60) as http:
        headers = {"X-Request-Id": "mine-1", "Authorization": f"Bearer {KEY}"}
        answer = http.get("/v1/models?token=unsaid", headers=headers)
        assert (answer.status_code, answer.headers["X-Request-Id"]) == (200, "mine-1")
        assert len(http.get("/v1/models", headers=BEARER).headers["X-Request-Id"]) == 32
        for megabytes in (20, 26):  # refused by the service, and by nginx
            answer = http.post("/v1/audio/speech", content=b" " * (megabytes << 20), headers=BEARER)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")
        long = http.get("/v1/models", headers={"Authorization": f"Bearer {'x' * 16_000}"})
        assert (long.status_code, long.json()["error"]["code"]) == (401, "invalid_api_key")
        assert http.get("/metrics").status_code == 404
        assert http.get("/v2/health/ready").status_code == 200
    until(lambda: "mine-1" in site.nginx.requests(), 5)
    told = site.nginx.log() + "".join(path.read_text() for path in site.folder.glob("*.log"))
    assert KEY not in told
    assert "unsaid" not in site.nginx.log()


def test_with_no_server_at_all_the_answer_is_still_an_error_of_this_api(tmp_path: Path) -> None:
    nothing = {f"tts-{number}:{port}": free_port() for number in (1, 2) for port in (8080, 8081)}
    with Nginx(nothing, tmp_path) as nginx:
        answer = httpx.post(f"{nginx.url}/v1/audio/speech", json=SHORT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
        assert answer.headers["Retry-After"] == "1"
        assert answer.headers["X-Request-Id"]
        with pytest.raises(grpc.RpcError) as refused:
            inferred(nginx.grpc_address, "Hello.")
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_who_is_killed_takes_only_its_own_streams_along(site: Site) -> None:
    ids = [new_id(), new_id()]
    with (
        stream(site.nginx.url, LONG * 2, ids[0]) as one,
        stream(site.nginx.url, LONG * 2, ids[1]) as other,
    ):
        parts = [one.iter_raw(), other.iter_raw()]
        assert all(len(next(part)) for part in parts)
        assert [gauge(service, "cosyserve_active_streams") for service in site.services] == [1, 1]
        with Load(site) as load:
            time.sleep(1.5)
            killed_at = time.monotonic()
            site.kill(0)
            rest = []
            for part in parts:
                try:
                    rest.append(sum(map(len, part)))
                except httpx.HTTPError:
                    rest.append(-1)
            assert sorted(rest)[0] == -1, "the killed one's stream ends as if it were whole"
            assert sorted(rest)[1] > 1_000_000
            time.sleep(2)
            site.begin_again(0)
            back_at = time.monotonic()
            time.sleep(3)
    lines = site.nginx.requests()
    failed = [outcome for outcome in load.outcomes if outcome.problem is not None]
    for outcome in failed:
        assert outcome.began < killed_at, outcome
        assert lines[outcome.request_id]["upstream"].endswith(site.addresses(0)), outcome
    later = [outcome for outcome in load.outcomes if outcome.began >= killed_at]
    assert {outcome.kind for outcome in later} == {"_speech", "_write", "_infer"}
    back = [lines[outcome.request_id]["upstream"] for outcome in later if outcome.began > back_at]
    print(f"{len(load.outcomes)} requests, {len(failed)} failed, {len(back)} after the return")
    for index in (0, 1):
        assert any(upstream.endswith(site.addresses(index)) for upstream in back)


def test_a_rolling_restart_loses_nothing(site: Site) -> None:
    with Load(site) as load:
        for index in (0, 1):
            time.sleep(1)
            assert site.services[index].stop(grace=60) == 0
            site.begin_again(index)
        time.sleep(1)
    print(f"{len(load.outcomes)} requests, {sum(outcome.kind == '_infer' for outcome in load.outcomes)} of gRPC")
    assert len(load.outcomes) > 40
    assert [outcome for outcome in load.outcomes if outcome.problem is not None] == []
