"""Tensors and requests are decoded exactly, and whatever is sent instead is one kind of error."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import ApiError
from api.oip import grpc_messages
from api.oip.body import infer_response, read_infer_request
from api.oip.messages import message
from api.oip.models import served_models
from api.oip.request import InferRequest
from api.oip.tensors import MAX_TEXTS, NUMBERS, Tensor, from_raw, from_values, json_values, raw_bytes
from runners.request import ModelInfo

INFO = ModelInfo("tiny", 3, 24_000, None, (), (), ())


def _text(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


@pytest.mark.parametrize("datatype", [name for name in NUMBERS if name not in ("BOOL", "FP16")])
def test_numbers_are_the_same_in_json_and_raw(datatype: str) -> None:
    dtype = NUMBERS[datatype]
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    array = np.array([limits.min, 0, 1, limits.max], dtype)
    tensor = Tensor("x", datatype, (2, 2), array)
    again = from_values("x", datatype, [2, 2], json.loads(b"".join(json_values(tensor))))
    raw = from_raw("x", datatype, [2, 2], raw_bytes(tensor))
    for other in (again, raw):
        assert other.shape == (2, 2)
        assert isinstance(other.data, np.ndarray)
        assert other.data.dtype == dtype
        np.testing.assert_array_equal(other.data, array)


def test_long_lists_are_written_whole() -> None:
    array = np.random.default_rng(1).normal(size=40_000).astype(np.float32)
    values = json.loads(b"".join(json_values(Tensor("x", "FP32", (40_000,), array))))
    np.testing.assert_array_equal(np.array(values, np.float32), array)
    assert json.loads(b"".join(json_values(Tensor("x", "FP32", (0,), array[:0])))) == []


class Watched(Sequence):
    """A message's list of numbers, which may not be taken in one go."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.longest = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Any:
        piece = self.values[key].tolist()
        self.longest = max(self.longest, len(piece))
        return piece

    def __iter__(self) -> Any:
        raise AssertionError("all at once, they hold the interpreter for long")


@pytest.mark.parametrize("datatype", ["FP32", "UINT8"])
def test_long_lists_are_read_in_pieces(datatype: str) -> None:
    values = Watched(np.arange(100_000).astype(NUMBERS[datatype]))
    tensor = from_values("x", datatype, [len(values)], values)
    np.testing.assert_array_equal(tensor.data, values.values)
    assert 0 < values.longest <= 2**14


def test_bytes_of_countless_elements_are_not_taken_apart() -> None:
    many = MAX_TEXTS + 1
    with pytest.raises(ApiError, match=f"makes {many:,} elements, over {MAX_TEXTS:,}"):
        from_raw("x", "BYTES", [many], _text(b"") * many)
    assert len(from_raw("x", "BYTES", [MAX_TEXTS], _text(b"") * MAX_TEXTS).data) == MAX_TEXTS


def test_nested_lists_are_read_in_row_major_order() -> None:
    tensor = from_values("x", "INT32", [2, 1, 2], [[[1, 2]], [[3, 4]]])
    assert list(tensor.data) == [1, 2, 3, 4]


def test_bytes_are_the_same_in_json_and_raw() -> None:
    tensor = from_values("x", "BYTES", [1, 2], [["déjà", ""]])
    assert tensor.data == ("déjà".encode(), b"")
    assert from_raw("x", "BYTES", [2], raw_bytes(tensor)).data == tensor.data


@pytest.mark.parametrize(
    ("datatype", "shape", "values"),
    [
        ("FP32", [2], [1.0]),
        ("FP32", [1], [1.0, 2.0]),
        ("FP32", [1], [[[1.0, 2.0]]]),
        ("FP32", [1], ["1"]),
        ("FP32", [1], [True]),
        ("FP32", [1], [None]),
        ("FP64", [1], [10**400]),
        ("INT32", [1], [1.0]),
        ("INT32", [1], [2**31]),
        ("UINT8", [1], [-1]),
        ("UINT8", [1], [256]),
        ("BYTES", [1], [5]),
        ("BYTES", [1], ["\ud800"]),
        ("STRING", [1], ["x"]),
        ("FP32", [-1], []),
        ("FP32", [1.0], [1.0]),
        ("FP32", [True], [1.0]),
        ("FP32", ["1"], [1.0]),
        ("FP32", "1", [1.0]),
        ("FP32", None, [1.0]),
        ("FP32", [2**40], [1.0]),
        ("FP32", [2**20, 2**20], [1.0]),
        ("FP32", [1] * 9, [1.0]),
        ("FP32", [1], None),
        ("FP32", [1], "1"),
    ],
)
def test_values_that_do_not_fit_are_refused(datatype: str, shape: Any, values: Any) -> None:
    with pytest.raises(ApiError) as caught:
        from_values("x", datatype, shape, values)
    assert caught.value.status == 400
    assert "'x'" in caught.value.message


@pytest.mark.parametrize(
    ("datatype", "shape", "raw"),
    [
        ("FP32", [1], b"\0\0\0"),
        ("FP32", [1], b"\0\0\0\0\0"),
        ("FP32", [1000, 1000], b"\0\0\0\0"),
        ("TEXT", [1], b""),
        ("BYTES", [1], b""),
        ("BYTES", [1], _text(b"a", b"b")),
        ("BYTES", [2], _text(b"a")),
        ("BYTES", [1], _text(b"abc")[:-1]),
        ("BYTES", [1], _text(b"abc") + b"\0"),
        ("BYTES", [1], struct.pack("<I", 2**32 - 1) + b"abc"),
        ("BYTES", [1], b"\1\0"),
    ],
)
def test_raw_data_that_does_not_fit_is_refused(datatype: str, shape: list[int], raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        from_raw("x", datatype, shape, raw)
    assert (caught.value.status, caught.value.code) == (400, "invalid_tensor")


def _body(inputs: Any, tail: bytes = b"", **fields: Any) -> tuple[bytes, str]:
    head = json.dumps({"inputs": inputs, **fields}).encode()
    return head + tail, str(len(head))


def _binary(name: str, datatype: str, shape: list[int], size: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def test_binary_tensors_follow_the_json_in_order() -> None:
    raw = _text(b"Hello.")
    inputs = [_binary("a", "BYTES", [1], len(raw)), {"name": "b", "datatype": "INT32", "shape": [1], "data": [7]}]
    request = read_infer_request(*_body([*inputs, _binary("c", "UINT8", [2], 2)], raw + b"\1\2", id="7"))
    assert request.id == "7"
    assert request.inputs["a"].data == (b"Hello.",)
    assert list(request.inputs["b"].data) == [7]
    assert list(request.inputs["c"].data) == [1, 2]


@pytest.mark.parametrize(
    ("size", "tail"), [(2, b"\1"), (1, b"\1\2"), (-1, b"\1"), (True, b"\1"), ("1", b"\1"), (2**60, b"\1")]
)
def test_a_binary_size_that_lies_is_refused(size: Any, tail: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_infer_request(*_body([_binary("a", "UINT8", [1], size)], tail))
    assert caught.value.code == "invalid_tensor"


@pytest.mark.parametrize("header", ["", "-1", "1e3", "99999", "²", " 5", "5" * 5000])
def test_a_header_length_that_is_none_is_refused(header: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_infer_request(_body([])[0], header)
    assert caught.value.status == 400


async def test_outputs_are_binary_where_that_was_asked() -> None:
    audio = Tensor("audio", "INT16", (2,), np.array([1, -2], np.int16))
    rate = Tensor("sample_rate", "INT32", (1,), np.array([24_000], np.int32))
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Hi."]}]
    wanted = [{"name": "audio", "parameters": {"binary_data": True}}, {"name": "sample_rate"}]
    request = read_infer_request(*_body(inputs, outputs=wanted, id="9"))
    content, length = await infer_response({"model_name": "m"}, [audio, rate], request)
    assert length is not None
    head = json.loads(content[:length])
    assert head["id"] == "9"
    assert head["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert head["outputs"][1]["data"] == [24_000]
    assert content[length:] == struct.pack("<2h", 1, -2)


@pytest.mark.parametrize(("over", "count"), [("rest", 30_000), ("grpc", 100_000)])
def test_requests_for_countless_outputs_are_refused_at_once(over: str, count: int) -> None:
    outputs = [{"name": f"audio{number}"} for number in range(count)]
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [1]}]
    body = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    request = message("ModelInferRequest")(inputs=inputs, outputs=outputs)
    began = time.monotonic()
    with pytest.raises(ApiError, match="over 32 outputs"):
        if over == "rest":
            read_infer_request(body, None)
        else:
            grpc_messages.read_infer_request(request)
    assert time.monotonic() - began < 5  # looking for repeats one by one takes minutes


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["text", "target_text", "ref_audio", "reference_wav", "reference_wav_len", "speed", "format"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_NAMES = st.sampled_from([spec.name for model in served_models(INFO) for spec in model.inputs])
_DATATYPES = st.sampled_from([*NUMBERS, "BYTES", "FP7"])
_SHAPES = st.lists(st.integers(-1, 3), max_size=3)
_VALUES = st.lists(
    st.integers(-300, 300) | st.floats() | st.text(max_size=5) | st.lists(st.integers(0, 9), max_size=3), max_size=4
)
_TENSORS = st.fixed_dictionaries(
    {"name": _NAMES | _JSON, "datatype": _DATATYPES | _JSON, "shape": _SHAPES | _JSON},
    optional={
        "data": _VALUES | _JSON,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(0, 20) | _JSON}) | _JSON,
    },
)
_REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(_TENSORS | _JSON, max_size=4) | _JSON},
    optional={"id": _JSON, "outputs": st.lists(_JSON, max_size=3) | _JSON, "parameters": _JSON},
)


def _understand(request: InferRequest) -> None:
    """What is done with a request before any work."""
    for model in served_models(INFO):
        try:
            model.check(request.inputs)
            model.wish(request.inputs, stream=False)
            model.audio(request.inputs)
        except ApiError as error:
            assert 400 <= error.status < 500
            error.message.encode()


@given(values=_REQUESTS | _JSON, tail=st.binary(max_size=40), header=st.none() | st.integers(-3, 3))
def test_any_rest_request_is_understood_or_refused(values: Any, tail: bytes, header: int | None) -> None:
    head = json.dumps(values).encode()
    try:
        request = read_infer_request(head + tail, None if header is None else str(len(head) + header))
    except ApiError as error:
        assert 400 <= error.status < 500
        error.message.encode()
        return
    _understand(request)


@given(body=st.binary(max_size=200), header=st.none() | st.text(max_size=5))
def test_any_bytes_are_refused(body: bytes, header: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        read_infer_request(body, header)
    assert 400 <= caught.value.status < 500


_CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        "bytes_contents": st.lists(st.binary(max_size=8), max_size=3),
        "int_contents": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "uint_contents": st.lists(st.integers(0, 2**32 - 1), max_size=3),
        "fp32_contents": st.lists(st.floats(width=32), max_size=3),
    },
)
_PROTO_TENSORS = st.fixed_dictionaries(
    {"name": _NAMES, "datatype": _DATATYPES, "shape": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9) | _SHAPES},
    optional={"contents": _CONTENTS},
)


@given(inputs=st.lists(_PROTO_TENSORS, max_size=4), raws=st.lists(st.binary(max_size=12), max_size=4))
def test_any_grpc_request_is_understood_or_refused(inputs: list[dict], raws: list[bytes]) -> None:
    try:
        request = grpc_messages.read_infer_request(message("ModelInferRequest")(inputs=inputs, raw_input_contents=raws))
    except ApiError as error:
        assert 400 <= error.status < 500
        error.message.encode()
        return
    _understand(request)
