"""Bodies of the REST inference call: JSON, and the binary extension with raw tensors after the JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from api.errors import ApiError
from api.oip.request import (
    BINARY_OUTPUT,
    InferRequest,
    RequestedOutput,
    check_input_parameters,
    check_output_parameters,
    check_size,
    infer_request,
)
from api.oip.tensors import Tensor, from_raw, from_values, json_values, raw_bytes
from api.schema import loads

HEADER_LENGTH = "Inference-Header-Content-Length"
# The path names the model; KServe's client repeats it.
_REQUEST_KEYS = ("id", "inputs", "outputs", "parameters", "model_name")
_INPUT_KEYS = ("name", "shape", "datatype", "data", "parameters")
_OUTPUT_KEYS = ("name", "parameters")


def read_infer_request(body: bytes, header_length: str | None) -> InferRequest:
    """The request in `body`, whose JSON takes the first `header_length` bytes (None: all). Raises ApiError."""
    length = len(body) if header_length is None else _header_length(header_length, len(body))
    values = read_json(body[:length])
    _check_keys(values, _REQUEST_KEYS, "the request")
    inputs, outputs, request_id = _list(values, "inputs"), _list(values, "outputs"), values.get("id")
    if not inputs:
        raise ApiError(400, "missing_parameter", "`inputs` is required.", "inputs")
    if not isinstance(request_id, str | None):
        raise ApiError(400, "invalid_value", "`id` must be a string.", "id")
    check_size(inputs, outputs, request_id or "")
    raw = _Raw(body, length)
    tensors = [_input(_object(value, "an input"), raw) for value in inputs]
    raw.check_end()
    requested = [_output(_object(value, "an output")) for value in outputs]
    return infer_request(tensors, requested, _parameters(values), request_id or "")


def read_json(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ApiError: input_not_utf8, invalid_json, invalid_type."""
    return _object(loads(data), "the JSON")


async def infer_response(
    head: dict[str, Any], tensors: list[Tensor], request: InferRequest
) -> tuple[bytes, int | None]:
    """The response's body, and the length of its JSON when binary tensors follow it. `head`: all but id and outputs."""
    return await asyncio.to_thread(_write, {**head, "id": request.id}, tensors, request)


def _write(head: dict[str, Any], tensors: list[Tensor], request: InferRequest) -> tuple[bytes, int | None]:
    outputs, raws = [], []
    for tensor in tensors:
        fields: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if wants_binary(request, tensor.name):
            raws.append(raw_bytes(tensor))
            fields["parameters"] = {"binary_data_size": len(raws[-1])}
            outputs.append(_json(fields))
        else:
            outputs.append(_json(fields)[:-1] + b',"data":' + b"".join(json_values(tensor)) + b"}")
    content = _json(head)[:-1] + b',"outputs":[' + b",".join(outputs) + b"]}"
    return b"".join([content, *raws]), len(content) if raws else None


def wants_binary(request: InferRequest, name: str) -> bool:
    """Whether the output `name` goes after the JSON."""
    for output in request.outputs:
        if output.name == name and output.binary is not None:
            return output.binary
    return request.parameters.get(BINARY_OUTPUT, False)


class _Raw:
    """The bytes after the JSON, taken one tensor after the other."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body, self._position = body, start

    def take(self, name: str, size: Any) -> bytes:
        if type(size) is not int or size < 0:
            raise ApiError(400, "invalid_tensor", f"Tensor {name!r}: binary_data_size must be a whole number.", name)
        end = self._position + size
        if end > len(self._body):
            left = len(self._body) - self._position
            message = f"Tensor {name!r}: binary_data_size is {size:,}, but only {left:,} bytes of binary data are left."
            raise ApiError(400, "invalid_tensor", message, name)
        data = self._body[self._position : end]
        self._position = end
        return data

    def check_end(self) -> None:
        if left := len(self._body) - self._position:
            raise ApiError(400, "invalid_tensor", f"{left:,} bytes of binary data belong to no tensor.", "inputs")


def _header_length(value: str, size: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 12 and int(value) <= size):
        message = f"{HEADER_LENGTH} must be the length of the JSON, at most the body's {size:,} bytes."
        raise ApiError(400, "invalid_value", message, HEADER_LENGTH)
    return int(value)


def _input(values: dict[str, Any], raw: _Raw) -> Tensor:
    _check_keys(values, _INPUT_KEYS, "an input")
    name, datatype = _string(values, "name"), _string(values, "datatype")
    parameters = _parameters(values)
    check_input_parameters(name, parameters)
    data, shape = values.get("data"), values.get("shape")
    if "binary_data_size" not in parameters:
        return from_values(name, datatype, shape, data)
    if data is not None:
        raise ApiError(400, "invalid_tensor", f"Tensor {name!r} has both data and binary_data_size.", name)
    return from_raw(name, datatype, shape, raw.take(name, parameters["binary_data_size"]))


def _output(values: dict[str, Any]) -> RequestedOutput:
    _check_keys(values, _OUTPUT_KEYS, "an output")
    name = _string(values, "name")
    return RequestedOutput(name, check_output_parameters(name, _parameters(values)))


def _check_keys(values: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in values:
        if key not in known:
            message = f"There is no {key!r} in {what}; there are {', '.join(known)}."
            raise ApiError(400, "unknown_parameter", message, key)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ApiError(400, "invalid_type", f"{what[:1].upper()}{what[1:]} must be an object.")
    return value


def _list(values: dict[str, Any], name: str) -> list:
    value = values.get(name)
    if not isinstance(value, list | None):
        raise ApiError(400, "invalid_type", f"`{name}` must be a list.", name)
    return value or []


def _parameters(values: dict[str, Any]) -> dict[str, Any]:
    value = values.get("parameters")
    return _object(value, "`parameters`") if value is not None else {}


def _string(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise ApiError(400, "invalid_type", f"`{name}` of each tensor must be a string.", name)
    return value


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
