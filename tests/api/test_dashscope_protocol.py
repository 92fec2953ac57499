"""DashScope's messages over a real socket, as far as its SDK does not send them by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from api.live_session import Limits
from tests.api.live_server import LiveServer, comes_true, live_server
from tests.api.oip_backend import FakeBackend, all_samples

PARAMETERS = {"voice": "cosy", "format": "pcm", "sample_rate": 24_000, "seed": 3, "text_type": "PlainText"}


def message(action: str, task_id: str = "t1", /, **payload: Any) -> str:
    return json.dumps({"header": {"action": action, "task_id": task_id, "streaming": "duplex"}, "payload": payload})


def run(task: str = "t1", **parameters: Any) -> str:
    about = {"model": "cosyvoice-v2", "task_group": "audio", "task": "tts", "function": "SpeechSynthesizer"}
    return message("run-task", task, **about, input={}, parameters={**PARAMETERS, **parameters})


def inference(server: LiveServer) -> connect:
    return connect(f"{server.url}/api-ws/v1/inference/")


async def until(socket: ClientConnection, event: str) -> tuple[dict[str, Any], bytes]:
    """The event, and the audio before it."""
    audio = b""
    while True:
        received = await asyncio.wait_for(socket.recv(), 20)
        if isinstance(received, bytes):
            audio += received
        elif (values := json.loads(received))["header"]["event"] == event:
            return values, audio


async def test_a_connection_runs_one_task_after_the_other() -> None:
    async with live_server(FakeBackend()) as server, inference(server) as socket:
        for task in ("first", "second"):
            await socket.send(run(task))
            assert (await until(socket, "task-started"))[0]["header"]["task_id"] == task
            await socket.send(message("continue-task", task, input={"text": "One. Two"}))
            await socket.send(message("finish-task", task, input={}))
            finished, audio = await until(socket, "task-finished")
            assert finished["header"]["task_id"] == task
            assert finished["payload"]["usage"] == {"characters": 8}
            expected = np.tile(all_samples(3), 2)
            np.testing.assert_allclose(np.frombuffer(audio, "<i2") / 32768, expected, atol=1e-4)
        await socket.send(run("empty"))
        await socket.send(message("finish-task", "empty", input={}))
        assert (await until(socket, "task-finished"))[1] == b""


async def test_a_cancelled_task_leaves_the_connection_for_the_next() -> None:
    backend = FakeBackend(hold=True)
    async with live_server(backend) as server, inference(server) as socket:
        await socket.send(run())
        await socket.send(message("continue-task", input={"text": "One. Two. Three."}))
        await comes_true(lambda: len(backend.requests) == 2)
        await socket.send(message("finish-task", input={}))
        await socket.send(message("finish-task", input={"directive": "cancel"}))
        await until(socket, "task-finished")
        await comes_true(lambda: backend.running == 0)
        await socket.send(run("t2"))
        await until(socket, "task-started")


@pytest.mark.parametrize(
    ("messages", "code", "close"),
    [
        (["{"], None, 1008),
        (["{}"], None, 1008),
        ([message("sing-task")], None, 1008),
        ([message("continue-task", input={"text": "Hi."})], None, 1008),
        ([run(), run("t2")], "invalid_value", 1008),
        ([run(), message("continue-task", "t2", input={"text": "Hi."})], "invalid_value", 1008),
        ([run(), message("continue-task", input={"words": "Hi."})], "unknown_parameter", 1008),
        ([run(), message("continue-task", input={"text": "a" * 20_001})], "input_too_long", 1008),
        ([run(volume="loud")], "invalid_type", 1008),
        ([run(volume=101)], "invalid_value", 1008),
        ([run(format="gif")], "unsupported_format", 1008),
        ([run(type=1)], "unsupported_parameter", 1008),
        ([run(hot_fix={"pronunciation": [{"a": ""}]})], "invalid_pronunciation", 1008),
        ([run(), message("continue-task", input={"text": "Fails. "}), "hold"], "engine_error", 1011),
    ],
)
async def test_what_cannot_be_followed_fails_the_task_and_closes(
    messages: list[str], code: str | None, close: int
) -> None:
    backend = FakeBackend(fail_after=1 if messages[-1] == "hold" else None)
    async with live_server(backend) as server, inference(server) as socket:
        for sent in messages:
            if sent != "hold":
                await socket.send(sent)
        if code is not None:
            failed, _ = await until(socket, "task-failed")
            assert failed["header"]["error_code"] == code
            assert failed["header"]["error_message"]
            assert failed["header"]["task_id"] == "t1"
        await asyncio.wait_for(socket.wait_closed(), 20)
        assert socket.close_code == close
    await comes_true(lambda: backend.running == 0)


@pytest.mark.parametrize("model", ["cosyvoice-v3", "cosyvoice-v3-flash", "nonsense", None])
async def test_a_model_that_is_not_loaded_is_answered_by_the_name_of_the_one_that_is(model: str | None) -> None:
    backend = FakeBackend()
    async with live_server(backend) as server, inference(server) as socket:
        await socket.send(message("run-task", model=model, input={}, parameters=PARAMETERS))
        await socket.send(message("continue-task", input={"text": "Never heard. "}))
        failed, audio = await until(socket, "task-failed")
        assert failed["header"]["error_code"] == "model_not_found"
        assert "model is 'cosyvoice-v2'" in failed["header"]["error_message"]
        await asyncio.wait_for(socket.wait_closed(), 20)
    assert (audio, backend.requests) == (b"", [])


async def test_silence_and_the_drain_fail_the_task() -> None:
    async with live_server(FakeBackend(), Limits(idle_s=0.2)) as server:
        async with inference(server) as socket:
            await socket.send(run())
            assert (await until(socket, "task-failed"))[0]["header"]["error_code"] == "idle_timeout"
        async with inference(server) as socket:
            await socket.send(run())
            await until(socket, "task-started")
            server.app.state.draining.set()
            assert (await until(socket, "task-failed"))[0]["header"]["error_code"] == "draining"
            await asyncio.wait_for(socket.wait_closed(), 20)
            assert socket.close_code == 1012
