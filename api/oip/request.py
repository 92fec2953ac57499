"""An inference request as both transports give it, and what it asks of its outputs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from api.errors import ApiError
from api.oip.tensors import Tensor

MAX_INPUTS = 32
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
        if twice := {name for name in names if names.count(name) > 1}:
            raise ApiError(400, "invalid_value", f"There are two {what}s of the name {min(twice)!r}.", min(twice))
    for name, value in parameters.items():
        kind = _PARAMETERS.get(name)
        if kind is None:
            raise ApiError(400, "unknown_parameter", f"This server has no request parameter {name!r}.", name)
        if not isinstance(value, kind):
            raise ApiError(400, "invalid_value", f"The request parameter {name!r} must be true or false.", name)
    return InferRequest(
        {tensor.name: tensor for tensor in inputs}, tuple(outputs), parameters, request_id or uuid.uuid4().hex
    )


def check_input_parameters(name: str, parameters: Any) -> None:
    """Refuse tensors that lie elsewhere than in the request. Raises ApiError."""
    if any(key.startswith("shared_memory") for key in parameters):
        raise ApiError(400, "unsupported_parameter", f"Tensor {name!r}: shared memory is not supported.", name)


def check_output_parameters(name: str, parameters: Any) -> bool | None:
    """The output's `binary_data`. Raises ApiError for any other parameter."""
    for key in parameters:
        if key != "binary_data":
            raise ApiError(400, "unsupported_parameter", f"Output {name!r}: {key!r} is not supported.", name)
    binary = parameters.get("binary_data")
    if binary is not None and not isinstance(binary, bool):
        raise ApiError(400, "invalid_value", f"Output {name!r}: binary_data must be true or false.", name)
    return binary


def too_many_inputs() -> ApiError:
    return ApiError(400, "invalid_value", f"There are over {MAX_INPUTS} tensors in the request.", "inputs")
