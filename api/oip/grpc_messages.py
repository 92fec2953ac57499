"""Inference requests and answers as protobuf messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from api.errors import ApiError
from api.oip.messages import message
from api.oip.models import VERSION, ServedModel
from api.oip.request import (
    MAX_ID,
    InferRequest,
    RequestedOutput,
    check_input_parameters,
    check_output_parameters,
    check_size,
    infer_request,
)
from api.oip.tensors import BYTES, Tensor, from_raw, from_values, raw_bytes
from api.oip.wire import read_message

FINAL = "triton_final_response"
ModelInferRequest = message("ModelInferRequest")
ModelInferResponse = message("ModelInferResponse")
ModelStreamInferResponse = message("ModelStreamInferResponse")
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}


@dataclass(frozen=True)
class InferCall:
    """A ModelInferRequest. `raw`: its tensors came as bytes; `content`: what it asks for, or what is wrong with it."""

    model_name: str
    model_version: str
    id: str
    raw: bool
    content: InferRequest | ApiError

    def asked(self) -> InferRequest:
        """Raises ApiError."""
        if isinstance(self.content, ApiError):
            raise self.content
        return self.content


def read_infer_call(data: bytes) -> InferCall:
    """Raises ApiError invalid_message."""
    request = read_message(ModelInferRequest, data)
    content: InferRequest | ApiError
    try:
        content = read_infer_request(request)
    except ApiError as error:
        content = error
    raw = bool(request.raw_input_contents)
    return InferCall(request.model_name, request.model_version, request.id, raw, content)


def read_infer_request(request: Any) -> InferRequest:
    """A ModelInferRequest, checked. Raises ApiError."""
    check_size(request.inputs, request.outputs, request.id)
    raws = request.raw_input_contents
    if raws and len(raws) != len(request.inputs):
        text = f"There are {len(request.inputs)} inputs, but {len(raws):,} raw_input_contents."
        raise ApiError(400, "invalid_tensor", text, "raw_input_contents")
    tensors = []
    for position, tensor in enumerate(request.inputs):
        check_input_parameters(tensor.name, tensor.parameters)
        tensors.append(_raw_input(tensor, raws[position]) if raws else _input(tensor))
    outputs = [
        RequestedOutput(output.name, check_output_parameters(output.name, _parameters(output.parameters)))
        for output in request.outputs
    ]
    return infer_request(tensors, outputs, _parameters(request.parameters), request.id)


def infer_response(model: ServedModel, asked: InferRequest, tensors: list[Tensor], raw: bool) -> Any:
    """A ModelInferResponse. `raw`: the data as bytes, otherwise in the typed lists."""
    response = ModelInferResponse(model_name=model.name, model_version=VERSION, id=asked.id)
    for tensor in tensors:
        output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if raw:
            response.raw_output_contents.append(raw_bytes(tensor))
        else:
            values = tensor.data.tolist() if isinstance(tensor.data, np.ndarray) else tensor.data
            getattr(output.contents, _CONTENTS[tensor.datatype]).extend(values)
    return response


def hop_response(model: ServedModel, asked: InferRequest, tensors: list[Tensor]) -> Any:
    """One ModelStreamInferResponse of several."""
    response = ModelStreamInferResponse(infer_response=infer_response(model, asked, tensors, raw=True))
    response.infer_response.parameters[FINAL].bool_param = False
    return response


def final_response(model: ServedModel, asked: InferRequest) -> Any:
    """The empty ModelStreamInferResponse after the last hop."""
    response = ModelStreamInferResponse(infer_response=infer_response(model, asked, [], raw=True))
    response.infer_response.parameters[FINAL].bool_param = True
    return response


def failed_response(call: InferCall, error: str) -> Any:
    """The ModelStreamInferResponse that ends a request which failed, its names cut: they may be why it failed."""
    response = ModelStreamInferResponse(error_message=error)
    response.infer_response.model_name = call.model_name[:MAX_ID]
    response.infer_response.id = call.id[:MAX_ID]
    return response


def _raw_input(tensor: Any, raw: bytes) -> Tensor:
    if tensor.HasField("contents"):
        text = f"Tensor {tensor.name!r} has contents beside raw_input_contents."
        raise ApiError(400, "invalid_tensor", text, tensor.name)
    return from_raw(tensor.name, tensor.datatype, tensor.shape, raw)


def _input(tensor: Any) -> Tensor:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        text = f"Tensor {tensor.name!r}: {tensor.datatype!r} is no datatype with typed contents."
        raise ApiError(400, "invalid_tensor", text, tensor.name)
    return from_values(tensor.name, tensor.datatype, tensor.shape, getattr(tensor.contents, field))


def _parameters(parameters: Any) -> dict[str, Any]:
    values = {}
    for name, parameter in parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        values[name] = getattr(parameter, choice) if choice else None
    return values
