"""An inference request as both transports give it, and what it asks of its outputs."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from api.errors import ApiError
from api.oip.tensors import Tensor

MAX_TENSORS = 32
"""Inputs of one request, and outputs: more than any model has."""
MAX_ID = 128
FINAL_RESPONSE = "triton_enable_empty_final_response"
"""Triton's request parameter: end a stream with an empty response that is marked as the final one."""
BINARY_OUTPUT = "binary_data_output"
_PARAMETERS = {FINAL_RESPONSE: bool, BINARY_OUTPUT: bool}


@dataclass(frozen=True)
class RequestedOutput:
    """One output the client wants; `binary` None: as the whole request says."""

    name: str
    binary: bool | None = None


@dataclass(frozen=True)
class InferRequest:
    """`outputs` empty: all. `parameters` are checked: only known ones, with the right type."""

    inputs: dict[str, Tensor]
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: dict[str, bool] = field(default_factory=dict)
    id: str = ""


def infer_request(
    inputs: list[Tensor], outputs: list[RequestedOutput], parameters: dict[str, Any], request_id: str
) -> InferRequest:
    """Raises ApiError for what occurs twice and for parameters that would not be honoured. An id is made if empty."""
    for what, names in (("input", [t.name for t in inputs]), ("output", [o.name for o in outputs])):
        if names and (most := Counter(names).most_common(1)[0])[1] > 1:
            raise ApiError(400, "invalid_value", f"There are two {what}s of the name {most[0]!r}.", most[0])
    for name, value in parameters.items():
        kind = _PARAMETERS.get(name)
        if kind is None:
            raise ApiError(400, "unknown_parameter", f"This server has no request parameter {name!r}.", name)
        if not isinstance(value, kind):
            raise ApiError(400, "invalid_value", f"The request parameter {name!r} must be true or false.", name)
    return InferRequest(
        {tensor.name: tensor for tensor in inputs}, tuple(outputs), parameters, request_id or uuid.uuid4().hex
    )


def check_size(inputs: Sized, outputs: Sized, request_id: str) -> None:
    """To be asked before anything is made of a request. Raises ApiError invalid_value."""
    for name, tensors in (("inputs", inputs), ("outputs", outputs)):
        if len(tensors) > MAX_TENSORS:
            raise ApiError(400, "invalid_value", f"There are over {MAX_TENSORS} {name} in the request.", name)
    if len(request_id) > MAX_ID:  # it is repeated with every hop
        raise ApiError(400, "invalid_value", f"`id` has {len(request_id):,} characters, over {MAX_ID}.", "id")


def check_input_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    """Raises ApiError for all but `binary_data_size`, which KServe's client sends over gRPC too."""
    _check_parameters(f"Input {name!r}", name, parameters, "binary_data_size")


def check_output_parameters(name: str, parameters: Mapping[str, Any]) -> bool | None:
    """The output's `binary_data`. Raises ApiError for any other parameter."""
    _check_parameters(f"Output {name!r}", name, parameters, "binary_data")
    binary = parameters.get("binary_data")
    if binary is not None and not isinstance(binary, bool):
        raise ApiError(400, "invalid_value", f"Output {name!r}: binary_data must be true or false.", name)
    return binary


def _check_parameters(what: str, name: str, parameters: Mapping[str, Any], known: str) -> None:
    for key in parameters:
        if key != known:
            raise ApiError(400, "unsupported_parameter", f"{what}: the parameter {key!r} is not supported.", name)
