"""The Open Inference Protocol by the unmodified clients of KServe, and what needs no client: the real service."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import soundfile
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from kserve.protocol.infer_type import InferInput, InferRequest, RequestedOutput

from launch.server import LaunchError, Server
from tests.service import oip_server
from tests.service.oip_server import SEED, TEXT, InferenceServer, assert_same, gauge, speech

service, spoken, reference = oip_server.service, oip_server.spoken, oip_server.reference


def _kserve_inputs(binary: bool, **options: Any) -> list[InferInput]:
    values: dict[str, np.ndarray] = {
        "text": np.array([TEXT], object),
        "seed": np.array([SEED], np.int64),
        **{
            name: np.array([value], object) if isinstance(value, str) else np.asarray(value)
            for name, value in options.items()
        },
    }
    datatypes = {"O": "BYTES", "i": "INT64", "u": "UINT8", "f": "FP32"}
    inputs = []
    for name, array in values.items():
        tensor = InferInput(name, list(array.shape), datatypes[array.dtype.kind])
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return inputs


def _rest(protocol: str) -> InferenceRESTClient:
    return InferenceRESTClient(RESTConfig(protocol=protocol, timeout=120))


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("audio_format", ["int16", "float32", "pcm"])
async def test_kserve_rest_v2_gives_the_samples_of_the_speech_api(
    service: InferenceServer, spoken: np.ndarray, binary_in: bool, binary_out: bool, audio_format: str
) -> None:
    request = InferRequest(
        "narrator",
        _kserve_inputs(binary_in, format=audio_format),
        request_id="id-1",
        parameters={"binary_data_output": True} if binary_out else None,
    )
    async with _rest("v2") as client:
        answer = await client.infer(service.url, request, model_name="narrator")
    assert (answer.id, answer.model_name) == ("id-1", "narrator")
    audio, rate = answer.outputs
    assert (audio.name, audio.datatype) == (
        "audio",
        {"int16": "INT16", "float32": "FP32", "pcm": "UINT8"}[audio_format],
    )
    assert_same(audio.as_numpy(), spoken)
    assert list(rate.as_numpy()) == [24_000]


@pytest.mark.parametrize("audio_format", ["wav", "flac", "wav_base64", "flac_base64"])
async def test_kserve_rest_v2_gives_files(service: InferenceServer, spoken: np.ndarray, audio_format: str) -> None:
    outputs = [RequestedOutput("audio", {"binary_data": True})]
    request = InferRequest("narrator", _kserve_inputs(False, format=audio_format), request_outputs=outputs)
    async with _rest("v2") as client:
        (audio,) = (await client.infer(service.url, request, model_name="narrator")).outputs
    if audio_format.endswith("base64"):
        assert audio.datatype == "BYTES"
        data = base64.b64decode(audio.as_numpy()[0])
    else:
        assert audio.datatype == "UINT8"
        data = audio.as_numpy().tobytes()
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    np.testing.assert_array_equal(samples, spoken)
    assert rate == 24_000


async def test_kserve_rest_v2_clones(service: InferenceServer, reference: np.ndarray) -> None:
    file = io.BytesIO()
    soundfile.write(file, reference, 16_000, format="WAV", subtype="FLOAT")
    data = file.getvalue()
    url = "data:audio/wav;base64," + base64.b64encode(data).decode()
    expected = speech(service, ref_audio=url)
    async with _rest("v2") as client:
        for form in (np.frombuffer(data, np.uint8), reference, base64.b64encode(data).decode()):
            inputs = _kserve_inputs(True, format="int16", ref_audio=form)
            answer = await client.infer(service.url, InferRequest("narrator", inputs), model_name="narrator")
            np.testing.assert_array_equal(answer.outputs[0].as_numpy(), expected)


async def test_kserve_rest_health_and_errors(service: InferenceServer) -> None:
    async with _rest("v2") as client:
        assert await client.is_server_live(service.url)
        assert await client.is_server_ready(service.url)
        assert await client.is_model_ready(service.url, "narrator")
        assert not await client.is_model_ready(service.url, "nobody")
        for name, options, code in (
            ("nobody", {}, "model_not_found"),
            ("narrator", {"voice": "nobody"}, "voice_not_found"),
            ("narrator", {"format": "wma"}, "unsupported_format"),
        ):
            request = InferRequest(name, _kserve_inputs(True, **options))
            with pytest.raises(httpx.HTTPStatusError, match=f"{code}: "):
                await client.infer(service.url, request, model_name=name)


async def test_kserve_rest_v1(service: InferenceServer, spoken: np.ndarray) -> None:
    async with _rest("v1") as client:
        assert await client.is_server_live(service.url)
        assert await client.is_model_ready(service.url, "narrator")
        instances = [{"text": TEXT, "seed": SEED, "format": "pcm"}, {"text": "Hello.", "seed": 1}]
        answer = await client.infer(service.url, {"instances": instances}, model_name="narrator")
        first, second = answer["predictions"]
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(first["audio"]), np.int16), spoken)
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(second["audio"])), dtype="int16")
        np.testing.assert_array_equal(samples, speech(service, input="Hello.", seed=1))
        assert rate == second["sample_rate"] == 24_000
        with pytest.raises(httpx.HTTPStatusError, match="voice_not_found: "):
            body = {"instances": [{"text": TEXT, "voice": "nobody"}]}
            await client.infer(service.url, body, model_name="narrator")


@pytest.mark.parametrize("raw", [True, False])
async def test_kserve_grpc(service: InferenceServer, spoken: np.ndarray, raw: bool) -> None:
    async with InferenceGRPCClient(service.grpc_address, timeout=120) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("narrator")
        for audio_format in ("int16", "float32", "pcm"):
            request = InferRequest("narrator", _kserve_inputs(raw, format=audio_format), request_id="id-2")
            answer = await client.infer(request)
            assert answer.id == "id-2"
            audio = answer.outputs[0]
            assert_same(audio.as_numpy(), spoken)


async def test_kserve_grpc_errors(service: InferenceServer) -> None:
    async with InferenceGRPCClient(service.grpc_address, timeout=120) as client:
        for name, options, status in (
            ("nobody", {}, grpc.StatusCode.NOT_FOUND),
            ("narrator", {"voice": "nobody"}, grpc.StatusCode.NOT_FOUND),
            ("narrator", {"format": "wma"}, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.infer(InferRequest(name, _kserve_inputs(True, **options)))
            assert caught.value.code() is status
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.is_model_ready("nobody")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_requests_are_counted_with_their_outcomes(service: InferenceServer) -> None:
    def count(mode: str, outcome: str) -> float:
        return gauge(service, f'cosyserve_requests_total{{mode="{mode}",outcome="{outcome}",route="oip"}}')

    before = [count("preset", "ok"), count("none", "unknown_tensor")]
    for name in ("text", "wings"):
        tensor = {"name": name, "datatype": "BYTES", "shape": [1], "data": ["Hi."]}
        httpx.post(service.url + "/v2/models/narrator/infer", json={"inputs": [tensor]}, timeout=120)
    assert [count("preset", "ok"), count("none", "unknown_tensor")] == [before[0] + 1, before[1] + 1]


def test_generate_stream_is_the_streamed_speech(service: InferenceServer) -> None:
    body = {"text_input": TEXT, "parameters": {"seed": SEED, "format": "pcm"}}
    events = []
    with httpx.stream("POST", service.url + "/v2/models/narrator/generate_stream", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line:
                events.append(json.loads(line.removeprefix("data: ")))
    assert events[-1]["final"]
    data = b"".join(base64.b64decode(event["audio"]) for event in events)
    expected = speech(service, stream=True)
    np.testing.assert_array_equal(np.frombuffer(data, np.int16), expected)


def test_the_page_of_the_service_is_still_there(service: InferenceServer) -> None:
    page = httpx.get(service.url + "/", headers={"Accept": "text/html"}, follow_redirects=True)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "/v2/models/{name}/infer" in httpx.get(service.url + "/docs.json").json()["paths"]


def test_a_grpc_port_that_cannot_be_used_is_one_sentence(service: InferenceServer) -> None:
    for port, sentence in ((str(service.grpc_port), "gRPC cannot listen on"), ("many", "GRPC_PORT=many is not a port")):
        with Server(env={"GRPC_PORT": port}) as other, pytest.raises(LaunchError, match=sentence):
            other.wait_ready(timeout=120)
