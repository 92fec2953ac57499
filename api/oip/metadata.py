"""What the protocol's metadata calls tell of the server and its models."""

from __future__ import annotations

from typing import Any

from api.oip.models import PLATFORM, VERSION, ServedModel, TensorSpec
from api.oip.tensors import BYTES

SERVER_NAME = "cosyserve"
SERVER_VERSION = "0.1.0"
EXTENSIONS = ("binary_tensor_data", "generate", "model_configuration", "model_repository(load)")


def server() -> dict[str, Any]:
    return {"name": SERVER_NAME, "version": SERVER_VERSION, "extensions": list(EXTENSIONS)}


def model(served: ServedModel) -> dict[str, Any]:
    """The protocol's model metadata."""
    return {
        "name": served.name,
        "versions": [VERSION],
        "platform": PLATFORM,
        "inputs": [_tensor(spec) for spec in served.inputs],
        "outputs": [_tensor(spec) for spec in served.outputs],
    }


def config(served: ServedModel) -> dict[str, Any]:
    """Triton's model configuration, as far as it says something here: the shape of its ModelConfig message."""
    return {
        "name": served.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": 0,
        "input": [{**_dimensions(spec), "optional": spec.optional} for spec in served.inputs],
        "output": [_dimensions(spec) for spec in served.outputs],
        "model_transaction_policy": {"decoupled": True},
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatypes[0], "shape": list(spec.shape)}


def _dimensions(spec: TensorSpec) -> dict[str, Any]:
    datatype = spec.datatypes[0]
    name = "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"
    return {"name": spec.name, "data_type": name, "dims": list(spec.shape)}
