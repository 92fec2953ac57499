"""The Open Inference Protocol by Triton's unmodified clients and upstream's tensors, against the real service."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from tests.service import oip_server
from tests.service.oip_server import (
    LONG,
    SEED,
    TEXT,
    InferenceServer,
    assert_same,
    gauge,
    speech,
    until,
)
from tests.service.test_streams import _runner_process

service, spoken, reference = oip_server.service, oip_server.spoken, oip_server.reference


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Any]]:
    """Runs a function of this module in a process of its own: where KServe's gRPC module is, Triton's cannot be."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, *values: pool.submit(function, *values).result(timeout=120)


def _triton_inputs(module: Any, reference: np.ndarray | None, text: str = TEXT) -> list[Any]:
    """As upstream's client makes them, with the padding that it adds."""
    values = {"target_text": np.array([[text]], object)}
    if reference is not None:
        padded = np.zeros((1, 16_000 * 10), np.float32)
        padded[0, : len(reference)] = reference
        values["reference_wav"] = padded
        values["reference_wav_len"] = np.array([[len(reference)]], np.int32)
        values["reference_text"] = np.array([[""]], object)
    datatypes = {"O": "BYTES", "i": "INT32", "f": "FP32"}
    inputs = []
    for name, array in values.items():
        inputs.append(module.InferInput(name, array.shape, datatypes[array.dtype.kind]))
        inputs[-1].set_data_from_numpy(array)
    return inputs


@pytest.mark.parametrize("binary", [True, False])
def test_triton_http(service: InferenceServer, spoken: np.ndarray, binary: bool) -> None:
    with triton_http.InferenceServerClient(service.url.removeprefix("http://"), network_timeout=120) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("narrator", "1")
        assert not client.is_model_ready("nobody")
        assert client.get_server_metadata()["name"] == "cosyserve"
        assert client.get_model_metadata("cosyvoice2")["outputs"][0]["name"] == "waveform"
        assert client.get_model_config("cosyvoice2")["model_transaction_policy"] == {"decoupled": True}
        client.load_model("narrator")
        with pytest.raises(InferenceServerException, match="unload_unsupported"):
            client.unload_model("narrator")
        inputs = []
        for name, datatype, value in (("text", "BYTES", TEXT), ("seed", "INT64", SEED), ("format", "BYTES", "int16")):
            array = np.array([value], object if datatype == "BYTES" else np.int64)
            inputs.append(triton_http.InferInput(name, [1], datatype))
            inputs[-1].set_data_from_numpy(array, binary_data=binary)
        outputs = [triton_http.InferRequestedOutput("audio", binary_data=binary)]
        answer = client.infer("narrator", inputs, request_id="id-3", outputs=outputs)
        assert answer.get_response()["id"] == "id-3"
        assert_same(answer.as_numpy("audio"), spoken)
        assert_same(client.infer("narrator", inputs).as_numpy("audio"), spoken)
        with pytest.raises(InferenceServerException, match="missing_tensor: "):
            client.infer("narrator", inputs[1:])


def test_triton_http_with_upstreams_tensors(service: InferenceServer, reference: np.ndarray) -> None:
    with triton_http.InferenceServerClient(service.url.removeprefix("http://"), network_timeout=120) as client:
        for wav in (reference, None):
            answer = client.infer("cosyvoice2", _triton_inputs(triton_http, wav))
            waveform = answer.as_numpy("waveform")
            assert waveform.dtype == np.float32
            assert waveform.shape[1] > 24_000
            assert 0.01 < np.abs(waveform).max() <= 4


def test_upstreams_json_client(service: InferenceServer, reference: np.ndarray) -> None:
    wav = reference.reshape(1, -1)
    body = {
        "inputs": [
            {"name": "reference_wav", "shape": wav.shape, "datatype": "FP32", "data": wav.tolist()},
            {"name": "reference_wav_len", "shape": [1, 1], "datatype": "INT32", "data": [[wav.shape[1]]]},
            {"name": "reference_text", "shape": [1, 1], "datatype": "BYTES", "data": ["Good morning."]},
            {"name": "target_text", "shape": [1, 1], "datatype": "BYTES", "data": [TEXT]},
        ]
    }
    url = service.url + "/v2/models/cosyvoice2/infer"
    answer = httpx.post(url, json=body, params={"request_id": "0"}, timeout=120)
    audio = np.array(answer.json()["outputs"][0]["data"], np.float32)
    assert audio.ndim == 1
    assert len(audio) > 24_000


def _triton_grpc_calls(address: str, reference: np.ndarray | None) -> dict[str, Any]:
    import tritonclient.grpc as triton_grpc

    with triton_grpc.InferenceServerClient(address) as client:
        found = {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model ready": client.is_model_ready("cosyvoice2"),
            "server": client.get_server_metadata(as_json=True),
            "metadata": client.get_model_metadata("cosyvoice2", as_json=True),
            "config": client.get_model_config("cosyvoice2", as_json=True),
            "statistics": client.get_inference_statistics("", as_json=True),
        }
        client.load_model("narrator")
        errors = (lambda: client.unload_model("narrator"), lambda: client.get_model_metadata("nobody"))
        for name, call in zip(("unload", "unknown"), errors, strict=True):
            try:
                call()
            except InferenceServerException as error:
                found[name] = (error.status(), error.message())
        outputs = [triton_grpc.InferRequestedOutput("waveform")]
        answer = client.infer("cosyvoice2", _triton_inputs(triton_grpc, reference), request_id="id-4", outputs=outputs)
        found["id"] = answer.get_response().id
        found["waveform"] = answer.as_numpy("waveform").reshape(-1)
        return found


def test_triton_grpc(service: InferenceServer, elsewhere: Callable[..., Any], reference: np.ndarray) -> None:
    found = elsewhere(_triton_grpc_calls, service.grpc_address, reference)
    assert found["live"]
    assert found["ready"]
    assert found["model ready"]
    assert found["server"]["name"] == "cosyserve"
    assert found["metadata"]["inputs"][0] == {"name": "reference_wav", "datatype": "FP32", "shape": ["1", "-1"]}
    assert found["config"]["config"]["model_transaction_policy"] == {"decoupled": True}
    assert {model["name"] for model in found["statistics"]["model_stats"]} == {"narrator", "cosyvoice2"}
    assert found["unload"][0] == "StatusCode.UNIMPLEMENTED"
    assert found["unknown"][0] == "StatusCode.NOT_FOUND"
    assert found["unknown"][1].startswith("model_not_found: ")
    assert found["id"] == "id-4"
    assert len(found["waveform"]) > 24_000


def _triton_stream(
    address: str, model: str, inputs: dict[str, Any], stop_after: int | None, started: Any = None
) -> tuple[list[tuple[float, np.ndarray]], str | None]:
    """Hops with the time of each, and how the stream ended: `final`, an error, or None when it was left."""
    import tritonclient.grpc as triton_grpc

    answers: queue.Queue = queue.Queue()

    def heard(answers: queue.Queue, result: Any, error: Any) -> None:
        answers.put(error or result)

    tensors = []
    for name, (datatype, value) in inputs.items():
        array = np.array([value], {"BYTES": object, "INT64": np.int64}[datatype])
        tensors.append(triton_grpc.InferInput(name, [1], datatype))
        tensors[-1].set_data_from_numpy(array)
    hops: list[tuple[float, np.ndarray]] = []
    ended = None
    client = triton_grpc.InferenceServerClient(address)
    client.start_stream(callback=functools.partial(heard, answers))
    client.async_stream_infer(model, tensors, request_id="id-5", enable_empty_final_response=True)
    while stop_after is None or len(hops) < stop_after:
        answer = answers.get(timeout=100)
        if isinstance(answer, InferenceServerException):
            ended = answer.message()
            break
        assert answer.get_response().id == "id-5"
        if answer.get_response().parameters["triton_final_response"].bool_param:
            ended = "final"
            break
        name = answer.get_response().outputs[0].name
        hops.append((time.monotonic(), answer.as_numpy(name).reshape(-1)))
        if started is not None:
            started.set()
    client.stop_stream(cancel_requests=ended is None)
    client.close()
    return hops, ended


def test_triton_grpc_streams_hop_by_hop(service: InferenceServer, elsewhere: Callable[..., Any]) -> None:
    inputs = {"text": ("BYTES", LONG), "seed": ("INT64", SEED), "format": ("BYTES", "int16")}
    hops, ended = elsewhere(_triton_stream, service.grpc_address, "narrator", inputs, None)
    assert ended == "final"
    assert len(hops) > 10
    samples = np.concatenate([samples for _, samples in hops])
    np.testing.assert_array_equal(samples, speech(service, input=LONG, stream=True))
    upstream = {"target_text": ("BYTES", TEXT)}
    hops, ended = elsewhere(_triton_stream, service.grpc_address, "cosyvoice2", upstream, None)
    assert ended == "final"
    assert {samples.dtype for _, samples in hops} == {np.dtype(np.float32)}


def test_triton_grpc_client_that_leaves_frees_its_slot(service: InferenceServer, elsewhere: Callable[..., Any]) -> None:
    hops, ended = elsewhere(_triton_stream, service.grpc_address, "cosyvoice2", {"target_text": ("BYTES", LONG)}, 1)
    assert (len(hops), ended) == (1, None)
    until(lambda: gauge(service, "cosyserve_engine_requests") == 0, 5)
    until(lambda: gauge(service, 'cosyserve_active_streams{route="oip"}') == 0, 5)


def test_sigterm_lets_a_running_grpc_stream_finish_and_ends_one_on_which_nothing_runs() -> None:
    with InferenceServer() as service:
        service.wait_ready(timeout=120)
        expected = speech(service, input=LONG, stream=True)
        inputs = {"text": ("BYTES", LONG), "seed": ("INT64", SEED), "format": ("BYTES", "int16")}
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, ProcessPoolExecutor(1, mp_context=context) as pool:
            started = manager.Event()
            listening = pool.submit(_triton_stream, service.grpc_address, "narrator", inputs, None, started)
            assert started.wait(60)
            left_open = threading.Thread(target=asyncio.run, args=(_hold_a_stream(service.grpc_address),))
            left_open.start()
            assert service.process is not None
            os.kill(service.process.pid, signal.SIGTERM)
            assert not listening.done(), "the stream was over before it could be drained"
            hops, ended = listening.result(timeout=120)
            left_open.join(30)
            assert not left_open.is_alive()
        assert ended == "final"
        np.testing.assert_array_equal(np.concatenate([samples for _, samples in hops]), expected)
        assert service.process.wait(30) == 0


async def _hold_a_stream(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
        await call.code()


def test_an_engine_that_dies_ends_a_stream_in_an_error(elsewhere: Callable[..., Any]) -> None:
    with InferenceServer() as service:
        service.wait_ready(timeout=120)
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, ProcessPoolExecutor(1, mp_context=context) as pool:
            started = manager.Event()
            inputs = {"text": ("BYTES", LONG)}
            listening = pool.submit(_triton_stream, service.grpc_address, "narrator", inputs, None, started)
            assert started.wait(60)
            _runner_process(service).kill()
            hops, ended = listening.result(timeout=60)
        assert hops
        assert ended == "engine_error: The engine stopped in the middle of this request."
