"""Bodies that are made to cost more than they say are refused at the first thing that is wrong with them."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from api.errors import ApiError
from api.oip.generate import read_fields
from api.oip.predict import read_instances
from api.schema import MAX_JSON_PARTS, MAX_JSON_VALUES, SpeechBody, loads, validated

MANY: dict[str, Any] = {"text": "Hi.", **{f"key{number}": 1 for number in range(30_000)}}


def test_the_first_unknown_key_is_refused_and_the_others_cost_nothing() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as caught:
            validated({"input": "Hi.", "watermark": 3, **MANY}, SpeechBody)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20  # each key described would take a kilobyte
    finally:
        tracemalloc.stop()
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "watermark")


@pytest.mark.parametrize("body", [MANY, {"instances": [MANY]}, {"instances": [7] * 30_000}])
def test_inference_bodies_are_refused_as_early(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    read = read_instances if "instances" in body else read_fields
    tracemalloc.start()
    try:
        parsed = json.loads(data)
        of_json = tracemalloc.get_traced_memory()[1]
        del parsed
        tracemalloc.reset_peak()
        with pytest.raises(ApiError):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < of_json + 4 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", [b"{},", b"[],", b'{"k":1},'])
def test_json_of_countless_parts_is_not_read(part: bytes) -> None:
    assert len(loads(b"[" + part * 1000 + b"0]")) == 1001
    with pytest.raises(ApiError, match="objects, lists and pairs") as caught:
        loads(b"[" + part * MAX_JSON_PARTS + b"0]")
    assert caught.value.code == "invalid_json"


def test_json_of_countless_numbers_is_not_read() -> None:
    with pytest.raises(ApiError, match="values") as caught:
        loads(b"[" + b"1," * (MAX_JSON_VALUES + 1) + b"0]")
    assert caught.value.code == "invalid_json"


def test_long_text_and_long_lists_of_numbers_are_read() -> None:
    assert len(loads(b'"' + b"a" * 2**20 + b'"')) == 2**20
    assert len(loads(b"[" + b"0.5," * 2**18 + b"0]")) == 2**18 + 1
