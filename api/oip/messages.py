"""The protocol's protobuf messages, built when this module is imported.

Field names, numbers and types are those of the published definitions (package `inference`; Triton's messages hold
the protocol's). They live in a descriptor pool of their own: clients' generated modules register the same names in the
default pool, and only one of them can be in it.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

# Fields by name: a scalar or message type, `[]` for repeated, `{}` for the values of a map with string keys; numbered
# from 1 in order, unless `=` gives a number.
_MESSAGES: dict[str, dict[str, str]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "bool"},
    "ModelReadyRequest": {"name": "string", "version": "string"},
    "ModelReadyResponse": {"ready": "bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {"name": "string", "version": "string", "extensions": "string[]"},
    "ModelMetadataRequest": {"name": "string", "version": "string"},
    "ModelMetadataResponse": {
        "name": "string",
        "versions": "string[]",
        "platform": "string",
        "inputs": "ModelMetadataResponse.TensorMetadata[]",
        "outputs": "ModelMetadataResponse.TensorMetadata[]",
    },
    "ModelMetadataResponse.TensorMetadata": {"name": "string", "datatype": "string", "shape": "int64[]"},
    "InferParameter": {
        "bool_param": "bool",
        "int64_param": "int64",
        "string_param": "string",
        "double_param": "double",
        "uint64_param": "uint64",
    },
    "InferTensorContents": {
        "bool_contents": "bool[]",
        "int_contents": "int32[]",
        "int64_contents": "int64[]",
        "uint_contents": "uint32[]",
        "uint64_contents": "uint64[]",
        "fp32_contents": "float[]",
        "fp64_contents": "double[]",
        "bytes_contents": "bytes[]",
    },
    "ModelInferRequest": {
        "model_name": "string",
        "model_version": "string",
        "id": "string",
        "parameters": "InferParameter{}",
        "inputs": "ModelInferRequest.InferInputTensor[]",
        "outputs": "ModelInferRequest.InferRequestedOutputTensor[]",
        "raw_input_contents": "bytes[]",
    },
    "ModelInferRequest.InferInputTensor": {
        "name": "string",
        "datatype": "string",
        "shape": "int64[]",
        "parameters": "InferParameter{}",
        "contents": "InferTensorContents",
    },
    "ModelInferRequest.InferRequestedOutputTensor": {"name": "string", "parameters": "InferParameter{}"},
    "ModelInferResponse": {
        "model_name": "string",
        "model_version": "string",
        "id": "string",
        "parameters": "InferParameter{}",
        "outputs": "ModelInferResponse.InferOutputTensor[]",
        "raw_output_contents": "bytes[]",
    },
    "ModelInferResponse.InferOutputTensor": {
        "name": "string",
        "datatype": "string",
        "shape": "int64[]",
        "parameters": "InferParameter{}",
        "contents": "InferTensorContents",
    },
    "ModelStreamInferResponse": {"error_message": "string", "infer_response": "ModelInferResponse"},
    # KServe has the model's name in the first field, Triton in the second, after the name of a repository.
    "RepositoryModelLoadRequest": {
        "repository_name": "string",
        "model_name": "string",
        "parameters": "ModelRepositoryParameter{}",
    },
    "RepositoryModelLoadResponse": {"model_name": "string", "isLoaded": "bool"},
    "RepositoryModelUnloadRequest": {
        "repository_name": "string",
        "model_name": "string",
        "parameters": "ModelRepositoryParameter{}",
    },
    "RepositoryModelUnloadResponse": {"model_name": "string", "isUnloaded": "bool"},
    "ModelRepositoryParameter": {
        "bool_param": "bool",
        "int64_param": "int64",
        "string_param": "string",
        "bytes_param": "bytes",
    },
    "ModelConfigRequest": {"name": "string", "version": "string"},
    "ModelConfigResponse": {"config": "ModelConfig"},
    "ModelConfig": {
        "name": "string",
        "platform": "string",
        "max_batch_size": "int32=4",
        "input": "ModelInput[]=5",
        "output": "ModelOutput[]=6",
        "backend": "string=17",
        "model_transaction_policy": "ModelTransactionPolicy=19",
    },
    "ModelInput": {"name": "string", "data_type": "DataType", "dims": "int64[]=4", "optional": "bool=8"},
    "ModelOutput": {"name": "string", "data_type": "DataType", "dims": "int64[]=3"},
    "ModelTransactionPolicy": {"decoupled": "bool"},
    "ModelStatisticsRequest": {"name": "string", "version": "string"},
    "ModelStatisticsResponse": {"model_stats": "ModelStatistics[]"},
    "ModelStatistics": {"name": "string", "version": "string", "inference_count": "uint64=4"},
}
_ONEOFS = {"InferParameter": "parameter_choice", "ModelRepositoryParameter": "parameter_choice"}
_ENUMS = {
    "DataType": (
        "TYPE_INVALID",
        "TYPE_BOOL",
        "TYPE_UINT8",
        "TYPE_UINT16",
        "TYPE_UINT32",
        "TYPE_UINT64",
        "TYPE_INT8",
        "TYPE_INT16",
        "TYPE_INT32",
        "TYPE_INT64",
        "TYPE_FP16",
        "TYPE_FP32",
        "TYPE_FP64",
        "TYPE_STRING",
        "TYPE_BF16",
    )
}

_Field = descriptor_pb2.FieldDescriptorProto


def message(name: str) -> Any:
    """The class of the message `name`. Raises KeyError."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for name, fields in _MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        _add_fields(made[name], name, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_fields(proto: descriptor_pb2.DescriptorProto, full_name: str, fields: dict[str, str]) -> None:
    oneof = _ONEOFS.get(full_name)
    if oneof:
        proto.oneof_decl.add(name=oneof)
    for position, (name, declared) in enumerate(fields.items(), 1):
        kind, _, number = declared.partition("=")
        field = proto.field.add(name=name, number=int(number or position), label=_Field.LABEL_OPTIONAL)
        if oneof:
            field.oneof_index = 0
        if kind.endswith("[]"):
            field.label = _Field.LABEL_REPEATED
        if kind.endswith("{}"):
            field.label = _Field.LABEL_REPEATED
            kind = _add_map_entry(proto, full_name, name, kind[:-2])
        _set_type(field, kind.removesuffix("[]"))


def _add_map_entry(proto: descriptor_pb2.DescriptorProto, full_name: str, field: str, value: str) -> str:
    entry = proto.nested_type.add(name=field.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), value)
    return f"{full_name}.{entry.name}"


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: str) -> None:
    if kind[0].islower():
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
        return
    field.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{kind}"


_POOL = _pool()
