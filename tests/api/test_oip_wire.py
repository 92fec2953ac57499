"""Messages that would cost more than their size says are refused on their bytes; every other one is read as it is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.arrival import LARGE_BODY_BYTES, MAX_BODY_BYTES
from api.errors import ApiError
from api.oip.grpc_messages import read_infer_call
from api.oip.messages import message
from api.oip.wire import MAX_FIELDS, MAX_NAME_BYTES, MAX_PACKED_BYTES, read_message

Request = message("ModelInferRequest")
Load = message("RepositoryModelLoadRequest")


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _many(content: bytes, *path: int) -> bytes:
    """As many of `content` as a body holds, within the messages at `path`."""
    data = content * ((MAX_BODY_BYTES - 100) // len(content))
    for number in reversed(path):
        data = _field(number, data)
    return data


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        pytest.param(Request, _many(b"\x2a\0"), id="inputs"),
        pytest.param(Request, _many(b"\x22\0"), id="parameters"),
        pytest.param(Request, _many(b"\x32\0"), id="outputs"),
        pytest.param(Request, _many(b"\x3a\0"), id="raw contents"),
        pytest.param(Request, _many(b"\x42\0", 5, 5), id="texts"),
        pytest.param(Request, _many(b"\x18\1", 5), id="a shape that is not packed"),
        pytest.param(Request, _many(b"\x78\1"), id="fields that nobody knows"),
        pytest.param(Request, _many(b"\1", 5, 3), id="a shape"),
        *[pytest.param(Request, _many(b"\1", 5, 5, number), id=f"contents {number}") for number in range(1, 6)],
        pytest.param(Request, _many(b"a", 1), id="the model's name"),
        pytest.param(Request, _many(b"\0", 5, 1), id="a tensor's name"),
        pytest.param(Load, _many(b"\x1a\0"), id="a load call's parameters"),
    ],
)
def test_what_would_cost_more_than_its_size_is_never_parsed(kind: Any, data: bytes) -> None:
    def parse(data: bytes) -> None:
        raise AssertionError("it was parsed")

    began = time.thread_time()
    with pytest.raises(ApiError) as caught:
        read_message(SimpleNamespace(DESCRIPTOR=kind.DESCRIPTOR, FromString=parse), data)
    assert time.thread_time() - began < 1  # parsed, most take far longer
    assert (caught.value.status, caught.value.code) == (400, "invalid_message")


class _Counted(bytes):
    """How many single bytes of it were looked at."""

    steps = 0

    def __getitem__(self, position: Any) -> Any:
        self.steps += 1
        return super().__getitem__(position)


@pytest.mark.parametrize(
    "part", [b"\x2a\0", b"\x78\1", b"\xf8\xff\xff\xff\xff\xff\xff\xff\xff\1" + b"\xff" * 9 + b"\1"]
)
def test_what_the_loop_reads_itself_takes_few_steps(part: bytes) -> None:
    data = _Counted(part * (LARGE_BODY_BYTES // len(part)))
    with pytest.raises(ApiError):
        read_message(Request, data)
    assert 2_000 < data.steps < 25_000  # a few milliseconds


def test_the_bounds_hold_exactly() -> None:
    assert len(read_message(Request, b"\x2a\0" * MAX_FIELDS).inputs) == MAX_FIELDS
    assert len(read_message(Request, _field(1, b"a" * MAX_NAME_BYTES)).model_name) == MAX_NAME_BYTES
    (tensor,) = read_message(Request, _field(5, _field(3, b"\1" * MAX_PACKED_BYTES))).inputs
    assert len(tensor.shape) == MAX_PACKED_BYTES
    for data in (
        b"\x2a\0" * (MAX_FIELDS + 1),
        _field(1, b"a" * (MAX_NAME_BYTES + 1)),
        _field(5, _field(3, b"\1" * (MAX_PACKED_BYTES // 2))) * 2 + _field(5, _field(3, b"\1")),
    ):
        with pytest.raises(ApiError):
            read_message(Request, data)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("samples", [30 * 16_000, 4 * 2**20 - 1000])
def test_a_recording_that_fills_its_message_is_read_exactly(raw: bool, samples: int) -> None:
    wave = np.random.default_rng(samples).normal(size=samples).astype(np.float32)
    request = Request(model_name="cosyvoice2")
    text = request.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])
    audio = request.inputs.add(name="reference_wav", datatype="FP32", shape=[1, samples])
    if raw:
        request.raw_input_contents.extend([b"\3\0\0\0Hi.", wave.tobytes()])
    else:
        text.contents.bytes_contents.append(b"Hi.")
        audio.contents.fp32_contents.extend(wave)
    data = request.SerializeToString()
    assert len(data) < MAX_BODY_BYTES
    call = read_infer_call(data)
    assert call.raw == raw
    assert call.asked().inputs["target_text"].data == (b"Hi.",)
    np.testing.assert_array_equal(call.asked().inputs["reference_wav"].data, wave)


_PARAMETERS = st.dictionaries(
    st.text(max_size=5),
    st.fixed_dictionaries({"bool_param": st.booleans()}) | st.fixed_dictionaries({"string_param": st.text(max_size=5)}),
    max_size=3,
)
_NUMBERS = st.lists(st.integers(0, 2**31 - 1), max_size=5)
_CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        "bool_contents": st.lists(st.booleans(), max_size=3),
        "int64_contents": _NUMBERS,
        "fp32_contents": st.lists(st.floats(0, 9, width=32), max_size=3),
        "fp64_contents": st.lists(st.floats(0, 9), max_size=3),
        "bytes_contents": st.lists(st.binary(max_size=5), max_size=3),
    },
)
_TENSORS = st.fixed_dictionaries(
    {"name": st.text(max_size=5), "shape": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)},
    optional={"contents": _CONTENTS, "parameters": _PARAMETERS},
)
_MESSAGES = st.fixed_dictionaries(
    {"inputs": st.lists(_TENSORS, max_size=3)},
    optional={"parameters": _PARAMETERS, "raw_input_contents": st.lists(st.binary(max_size=5), max_size=3)},
)


@settings(deadline=None)
@given(values=_MESSAGES)
def test_any_message_is_read_as_the_parser_reads_it(values: dict[str, Any]) -> None:
    request = Request(**values)
    assert read_message(Request, request.SerializeToString()) == request


def _changed(values: dict[str, Any], at: int, byte: int) -> bytes:
    data = bytearray(Request(**values).SerializeToString())
    if data:
        data[at % len(data)] = byte
    return bytes(data)


@settings(deadline=None)
@given(data=st.binary(max_size=60) | st.builds(_changed, _MESSAGES, st.integers(0, 200), st.integers(0, 255)))
def test_any_bytes_are_read_as_the_parser_reads_them_or_refused(data: bytes) -> None:
    try:
        request = read_message(Request, data)
    except ApiError as error:
        assert error.code == "invalid_message"
        return
    again = Request.FromString(data)
    assert request.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\5abc", b"\x2a\2\x0a\5abcde", b"\x0b\x0c", b"\xff" * 11, b"\x09abc"])
def test_what_is_cut_off_or_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError, match="no valid protobuf message"):
        read_message(Request, data)
