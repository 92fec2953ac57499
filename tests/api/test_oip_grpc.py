"""The gRPC server over a backend without runners: answers, status codes, streams that fail, cancelling, draining."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import numpy as np
import pytest

from api.app import create_app
from api.oip import grpc_messages
from api.oip.grpc_server import GrpcServer
from api.oip.grpc_settings import grpc_address
from api.oip.messages import SERVICE, message
from launch.server import free_port
from runners.request import RequestError
from tests.api.oip_backend import HOPS, FakeBackend, all_samples

Request = message("ModelInferRequest")
NO_RETRY = [("grpc.enable_retries", 0)]


class Running:
    """A server and a channel to it."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        state = create_app(backend).state
        self._draining: asyncio.Event = state.draining
        self.server = GrpcServer(state.inference, state.draining)
        self.address = f"127.0.0.1:{free_port()}"

    async def __aenter__(self) -> Running:
        await self.server.start(self.address)
        self.channel = grpc.aio.insecure_channel(self.address, options=NO_RETRY)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.channel.close()
        await asyncio.wait_for(self.drain(), 10)

    async def drain(self) -> None:
        self._draining.set()
        await self.server.stop()

    async def call(self, name: str, request: Any = b"") -> Any:
        """A unary call; `request` may be fields, or the bytes of a message."""
        data = request if isinstance(request, bytes) else message(f"{name}Request")(**request).SerializeToString()
        answer = await self.channel.unary_unary(f"/{SERVICE}/{name}")(data, timeout=30)
        return message(f"{name}Response").FromString(answer)

    def stream(self) -> grpc.aio.StreamStreamCall:
        return self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=Request.SerializeToString,
            response_deserializer=message("ModelStreamInferResponse").FromString,
        )(timeout=30)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with Running(FakeBackend()) as server:
        yield server


class Halting(FakeBackend):
    """After each frame of a stream it waits for the gate."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self._gate = gate

    async def stream(self, request: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        async for frame in super().stream(request):
            yield frame
            await self._gate.wait()


def _request(model: str = "cosyvoice2", text: str = "target_text", **fields: Any) -> dict[str, Any]:
    tensor = {"name": text, "datatype": "BYTES", "shape": [1, 1], "contents": {"bytes_contents": [b"Hello."]}}
    return {"model_name": model, "inputs": [tensor], **fields}


async def _fails(awaitable: Any, code: grpc.StatusCode, start: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    assert caught.value.code() is code
    assert (caught.value.details() or "").startswith(start + ": ")


async def test_health_metadata_and_configuration(running: Running) -> None:
    assert (await running.call("ServerLive")).live
    assert (await running.call("ServerReady")).ready
    assert (await running.call("ModelReady", {"name": "tiny"})).ready
    assert (await running.call("ServerMetadata")).name == "cosyserve"
    metadata = await running.call("ModelMetadata", {"name": "cosyvoice2", "version": "1"})
    assert [tensor.name for tensor in metadata.outputs] == ["waveform"]
    assert list(metadata.inputs[0].shape) == [1, -1]
    config = (await running.call("ModelConfig", {"name": "cosyvoice2"})).config
    assert config.model_transaction_policy.decoupled
    assert [tensor.name for tensor in config.output] == ["waveform"]
    running.backend.ready = False
    assert not (await running.call("ServerReady")).ready
    assert not (await running.call("ModelReady", {"name": "tiny"})).ready
    assert (await running.call("ServerLive")).live


async def test_statistics_count_what_was_answered(running: Running) -> None:
    await running.call("ModelInfer", _request())
    counts = {stats.name: stats.inference_count for stats in (await running.call("ModelStatistics")).model_stats}
    assert counts == {"tiny": 0, "cosyvoice2": 1}


@pytest.mark.parametrize("raw", [True, False])
async def test_an_answer_has_the_form_of_its_request(running: Running, raw: bool) -> None:
    request = Request(**_request(id="7"))
    if raw:
        request.inputs[0].ClearField("contents")
        request.raw_input_contents.append(b"\6\0\0\0Hello.")
    answer = await running.call("ModelInfer", request.SerializeToString())
    (output,) = answer.outputs
    expected = all_samples(running.backend.requests[0].seed)
    assert (answer.id, answer.model_name, answer.model_version) == ("7", "cosyvoice2", "1")
    assert (output.name, output.datatype, list(output.shape)) == ("waveform", "FP32", [1, len(expected)])
    assert len(answer.raw_output_contents) == int(raw)
    data = np.frombuffer(answer.raw_output_contents[0], "<f4") if raw else output.contents.fp32_contents
    np.testing.assert_array_equal(np.array(data, np.float32), expected)


@pytest.mark.parametrize("first_field", [True, False])
async def test_the_repository_calls_of_both_definitions(running: Running, first_field: bool) -> None:
    name = {"repository_name" if first_field else "model_name": "tiny"}
    assert (await running.call("RepositoryModelLoad", name)).isLoaded
    await _fails(running.call("RepositoryModelUnload", name), grpc.StatusCode.UNIMPLEMENTED, "unload_unsupported")
    await _fails(
        running.call("RepositoryModelLoad", {"model_name": "none"}), grpc.StatusCode.NOT_FOUND, "model_not_found"
    )


@pytest.mark.parametrize(
    ("request_fields", "code", "start"),
    [
        (_request(model="none"), grpc.StatusCode.NOT_FOUND, "model_not_found"),
        (_request(model_version="2"), grpc.StatusCode.NOT_FOUND, "model_not_found"),
        (_request(text="wings"), grpc.StatusCode.INVALID_ARGUMENT, "unknown_tensor"),
        (_request(raw_input_contents=[b"a"]), grpc.StatusCode.INVALID_ARGUMENT, "invalid_tensor"),
        (_request(raw_input_contents=[b"a", b"b"]), grpc.StatusCode.INVALID_ARGUMENT, "invalid_tensor"),
        (_request(outputs=[{"name": "audio"}]), grpc.StatusCode.INVALID_ARGUMENT, "unknown_tensor"),
        (_request(outputs=[{"name": f"o{n}"} for n in range(33)]), grpc.StatusCode.INVALID_ARGUMENT, "invalid_value"),
        (_request(id="7" * 129), grpc.StatusCode.INVALID_ARGUMENT, "invalid_value"),
        (_request(parameters={"wings": {"int64_param": 2}}), grpc.StatusCode.INVALID_ARGUMENT, "unknown_parameter"),
        (b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "invalid_message"),
    ],
)
async def test_wrong_requests(running: Running, request_fields: Any, code: grpc.StatusCode, start: str) -> None:
    await _fails(running.call("ModelInfer", request_fields), code, start)
    assert running.backend.requests == []


@pytest.mark.parametrize(
    ("error", "code", "start"),
    [
        (RequestError("overloaded", "Too many requests.", 429), grpc.StatusCode.RESOURCE_EXHAUSTED, "overloaded"),
        (RequestError("engine_unavailable", "Away.", 503), grpc.StatusCode.UNAVAILABLE, "engine_unavailable"),
        (RequestError("engine_error", "Stopped.", 500), grpc.StatusCode.INTERNAL, "engine_error"),
        (RuntimeError("a secret"), grpc.StatusCode.INTERNAL, "internal_error"),
    ],
)
async def test_failures_have_a_status(error: Exception, code: grpc.StatusCode, start: str) -> None:
    async with Running(FakeBackend(fail_after=1, error=error)) as running:
        await _fails(running.call("ModelInfer", _request()), code, start)
        assert running.backend.running == 0


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_over_the_limit_is_refused_whatever_it_was_packed_to(
    running: Running, compression: grpc.Compression
) -> None:
    call = running.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\0" * (17 * 2**20), timeout=30, compression=compression)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


async def test_a_stream_answers_each_request_hop_by_hop(running: Running) -> None:
    call = running.stream()
    await call.write(Request(**_request(id="one", parameters=FINAL)))
    await call.write(Request(**_request(id="two")))
    await call.done_writing()
    answers = [answer async for answer in call]
    assert await call.code() is grpc.StatusCode.OK
    assert [answer.error_message for answer in answers] == [""] * (2 * HOPS + 1)
    responses = [answer.infer_response for answer in answers]
    assert [response.id for response in responses] == ["one"] * (HOPS + 1) + ["two"] * HOPS
    assert [response.parameters["triton_final_response"].bool_param for response in responses] == (
        [False] * HOPS + [True] + [False] * HOPS
    )
    assert len(responses[HOPS].outputs) == 0
    heard = b"".join(response.raw_output_contents[0] for response in responses[:HOPS])
    seed = running.backend.requests[0].seed
    np.testing.assert_array_equal(np.frombuffer(heard, np.float32), all_samples(seed))
    assert all(request.stream for request in running.backend.requests)


async def test_a_request_that_fails_in_its_stream_ends_in_an_error_and_the_next_one_is_answered() -> None:
    async with Running(FakeBackend(fail_after=1)) as running:
        call = running.stream()
        await call.write(Request(**_request(id="one", parameters=FINAL)))
        first, failed = await call.read(), await call.read()
        assert first.infer_response.outputs[0].name == "waveform"
        assert failed.error_message == "engine_error: The engine stopped."
        assert failed.infer_response.id == "one"
        running.backend.fail_after = None
        await call.write(Request(**_request(id="two", text="wings")))
        assert (await call.read()).error_message.startswith("unknown_tensor: ")
        await call.write(Request(**_request(id="three")))
        await call.done_writing()
        rest = await _rest(call)
        assert [answer.infer_response.id for answer in rest] == ["three"] * HOPS
        assert running.backend.running == 0


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_cancels_frees_its_slot(streamed: bool) -> None:
    async with Running(FakeBackend(hold=True)) as running:
        request = Request(**_request())
        if streamed:
            call: Any = running.stream()
            await call.write(request)
            await call.read()
        else:
            call = running.channel.unary_unary(f"/{SERVICE}/ModelInfer")(request.SerializeToString())
        await _until(lambda: running.backend.running == 1)
        call.cancel()
        await _until(lambda: running.backend.running == 0)


async def test_a_deadline_frees_the_slot() -> None:
    async with Running(FakeBackend(hold=True)) as running:
        call = running.channel.unary_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(Request(**_request()).SerializeToString(), timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await _until(lambda: running.backend.running == 0)


async def test_draining_lets_a_running_answer_finish_and_ends_a_stream_on_which_nothing_runs() -> None:
    gate = asyncio.Event()

    async with Running(Halting(gate)) as running:
        idle = running.stream()
        await idle.wait_for_connection()
        busy = running.stream()
        await busy.write(Request(**_request()))
        hops = [await busy.read()]
        draining = asyncio.ensure_future(running.drain())
        assert await asyncio.wait_for(idle.code(), 10) is grpc.StatusCode.UNAVAILABLE
        assert (await idle.details()).startswith("draining: ")
        assert not draining.done()
        gate.set()
        await busy.done_writing()
        hops += await _rest(busy)
        assert len(hops) == HOPS
        assert all(not hop.error_message for hop in hops)
        await asyncio.wait_for(draining, 10)


async def test_draining_ends_a_call_whose_message_does_not_come_and_finishes_one_that_has_come() -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    class Slow(FakeBackend):
        async def stream(self, request: Any) -> AsyncIterator[Any]:  # type: ignore[override]
            begun.set()
            await gate.wait()
            async for frame in super().stream(request):
                yield frame

    async with Running(Slow()) as running:
        silent = running.channel.stream_unary(f"/{SERVICE}/ModelInfer")(timeout=30)
        await silent.wait_for_connection()
        assert (await running.call("ServerLive")).live  # the silent call is with the server, which had it first
        busy = asyncio.ensure_future(running.call("ModelInfer", _request()))
        await begun.wait()
        draining = asyncio.ensure_future(running.drain())
        await _fails(asyncio.wait_for(silent, 10), grpc.StatusCode.UNAVAILABLE, "draining")
        assert not draining.done()
        gate.set()
        assert (await busy).outputs[0].name == "waveform"
        await asyncio.wait_for(draining, 10)


async def test_a_message_that_never_comes_is_not_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.oip.grpc_server.MESSAGE_SECONDS", 0.1)
    silent = running.channel.stream_unary(f"/{SERVICE}/ModelInfer")(timeout=30)
    await _fails(silent, grpc.StatusCode.DEADLINE_EXCEEDED, "upload_stalled")


async def test_a_call_without_a_message_is_refused(running: Running) -> None:
    call = running.channel.stream_unary(f"/{SERVICE}/ServerLive")(timeout=30)
    await call.done_writing()
    await _fails(call, grpc.StatusCode.INVALID_ARGUMENT, "invalid_message")


BOMB = b"\x2a\x00" * (8 * 2**20 - 100)


@pytest.mark.parametrize("name", ["ModelInfer", "RepositoryModelLoad"])
async def test_messages_of_countless_parts_are_refused(running: Running, name: str) -> None:
    bomb = BOMB if name == "ModelInfer" else BOMB.replace(b"\x2a", b"\x1a")
    await asyncio.gather(
        *(_fails(running.call(name, bomb), grpc.StatusCode.INVALID_ARGUMENT, "invalid_message") for _ in range(3))
    )
    assert (await running.call("ServerLive")).live


async def test_a_stream_refuses_them_too(running: Running) -> None:
    call = running.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(timeout=30)
    await call.write(BOMB)
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await call.details()).startswith("invalid_message: ")


@pytest.mark.parametrize("streamed", [True, False])
async def test_large_messages_are_not_read_by_the_loop(
    running: Running, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    readers, read = [], grpc_messages.read_message

    def watched(*values: Any) -> Any:
        readers.append(threading.current_thread())
        return read(*values)

    monkeypatch.setattr(grpc_messages, "read_message", watched)
    request = Request(**_request(raw_input_contents=[b"a" * 100_000] * 2))  # refused: it has contents too
    if streamed:
        call = running.stream()
        await call.write(request)
        assert (await call.read()).error_message.startswith("invalid_tensor: ")
        call.cancel()
    else:
        await _fails(
            running.call("ModelInfer", request.SerializeToString()),
            grpc.StatusCode.INVALID_ARGUMENT,
            "invalid_tensor",
        )
    assert len(readers) == 1
    assert readers[0] is not threading.current_thread()


async def test_a_stream_takes_no_further_request_once_the_drain_began() -> None:
    gate = asyncio.Event()

    async with Running(Halting(gate)) as running:
        call = running.stream()
        await call.write(Request(**_request()))
        hops = [await call.read()]
        draining = asyncio.ensure_future(running.drain())
        await asyncio.sleep(0)
        await call.write(Request(**_request()))
        gate.set()
        for _ in range(HOPS - 1):
            hops.append(await call.read())
        assert all(hop.infer_response.outputs for hop in hops)
        assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.UNAVAILABLE
        assert (await call.details()).startswith("draining: ")
        assert len(running.backend.requests) == 1
        await asyncio.wait_for(draining, 10)


async def test_an_error_repeats_no_name_of_any_length(running: Running) -> None:
    call = running.stream()
    await call.write(Request(**_request(model="m" * 10_000, id="7" * 10_000)))
    await call.done_writing()
    (answer,) = await _rest(call)
    assert answer.error_message.startswith("invalid_value: ")
    assert (len(answer.infer_response.model_name), len(answer.infer_response.id)) == (128, 128)


async def test_a_port_in_use_is_an_error(running: Running) -> None:
    with pytest.raises(RuntimeError):
        await Running(FakeBackend()).server.start(running.address)


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, None),
        ({"GRPC_PORT": ""}, None),
        ({"GRPC_PORT": "0"}, None),
        ({"GRPC_PORT": "8081"}, "127.0.0.1:8081"),
        ({"GRPC_PORT": "8081", "BENTOML_CONTAINERIZED": "true"}, "0.0.0.0:8081"),
        ({"GRPC_PORT": "8081", "GRPC_HOST": "::1"}, "[::1]:8081"),
    ],
)
def test_where_it_listens(monkeypatch: pytest.MonkeyPatch, values: dict[str, str], address: str | None) -> None:
    for name in ("GRPC_PORT", "GRPC_HOST", "BENTOML_CONTAINERIZED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert grpc_address() == address


@pytest.mark.parametrize("port", ["-1", "70000", "eighty", "8 1", "²"])
def test_a_port_that_is_none(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    monkeypatch.setenv("GRPC_PORT", port)
    with pytest.raises(ValueError, match="GRPC_PORT"):
        grpc_address()


def test_what_is_not_served_is_not_imported() -> None:
    script = "import sys, service; print(sorted({'grpc', 'google.protobuf', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


async def _rest(call: grpc.aio.StreamStreamCall) -> list[Any]:
    answers = []
    while (answer := await call.read()) is not grpc.aio.EOF:
        answers.append(answer)
    return answers


async def _until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 10)
