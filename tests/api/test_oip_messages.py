"""The protobuf messages are those of the published clients, field by field, and get along with them in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor

from api.oip import messages, metadata

KSERVE = "kserve.protocol.grpc.grpc_predict_v2_pb2"
TRITON = "tritonclient.grpc.service_pb2"
TRITON_CONFIG = "tritonclient.grpc.model_config_pb2"
# What Triton's definition has and KServe's not, or the other way round.
REPOSITORY = [f"RepositoryModel{verb}{kind}" for verb in ("Load", "Unload") for kind in ("Request", "Response")]
CONFIG = ["ModelConfig", "ModelInput", "ModelOutput", "ModelTransactionPolicy"]
TRITON_ONLY = ["ModelStreamInferResponse", "ModelConfigRequest", "ModelConfigResponse", "ModelRepositoryParameter"]
TRITON_ONLY += ["ModelStatisticsRequest", "ModelStatisticsResponse", "ModelStatistics"]
SHARED = [name for name in messages._MESSAGES if name not in [*REPOSITORY, *CONFIG, *TRITON_ONLY]]


def fields_of(message: Descriptor) -> dict[str, list[Any]]:
    """Every field as [number, type, whether repeated, its message or enum, its oneof]."""
    fields = {}
    for field in message.fields:
        kind = field.message_type or field.enum_type
        oneof = field.containing_oneof.name if field.containing_oneof else None
        many = getattr(field, "is_repeated", None)  # since protobuf 6, where `label` is deprecated
        many = field.label == field.LABEL_REPEATED if many is None else many
        fields[field.name] = [field.number, field.type, many, kind.full_name if kind else None, oneof]
    return fields


def published(module: str, names: list[str]) -> dict[str, Any]:
    """The fields of `module`'s messages. In a process of its own: only one of the modules fits into one."""
    script = (
        f"import json, warnings; warnings.simplefilter('ignore'); import {module} as module\n"
        "from tests.api.test_oip_messages import fields_of\n"
        "import api.oip.messages\n"
        "found = {}\n"
        f"for name in {names!r}:\n"
        "    message = module.DESCRIPTOR.message_types_by_name[name.split('.')[0]]\n"
        "    for inner in name.split('.')[1:]:\n"
        "        message = message.nested_types_by_name[inner]\n"
        "    found[name] = fields_of(message)\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def own(name: str) -> dict[str, list[Any]]:
    return fields_of(messages.message(name).DESCRIPTOR)


def test_every_field_is_tritons() -> None:
    names = [name for name in messages._MESSAGES if name not in [*REPOSITORY, *CONFIG]]
    theirs = {**published(TRITON, names + REPOSITORY[::2]), **published(TRITON_CONFIG, CONFIG)}
    for name, fields in theirs.items():
        ours = own(name)
        assert ours == {field: fields[field] for field in ours}, name
        if name not in [*CONFIG, "ModelStatistics"]:  # of these only what is told
            assert ours.keys() == fields.keys(), name


def test_every_field_of_kserve_is_here() -> None:
    for name, fields in published(KSERVE, SHARED).items():
        ours = own(name)
        assert {field: ours[field] for field in fields} == fields, name
    for name, fields in published(KSERVE, REPOSITORY).items():
        shapes = [field[:3] for field in own(name).values()]  # the name of the field in a request is another one
        assert all(field[:3] in shapes for field in fields.values()), name


@pytest.mark.parametrize("module", [KSERVE, TRITON])
def test_messages_cross_over_to_the_clients_classes(module: str) -> None:
    script = (
        f"import {module} as module\n"
        "from api.oip.messages import message\n"
        "ours = message('ModelInferRequest')(model_name='m', id='7')\n"
        "ours.parameters['p'].bool_param = True\n"
        "ours.inputs.add(name='x', datatype='FP32', shape=[2]).contents.fp32_contents.extend([1, 2])\n"
        "theirs = module.ModelInferRequest.FromString(ours.SerializeToString())\n"
        "assert list(theirs.inputs[0].contents.fp32_contents) == [1, 2]\n"
        "assert theirs.parameters['p'].bool_param\n"
        "assert message('ModelInferRequest').FromString(theirs.SerializeToString()) == ours\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=120, check=True)


def test_the_version_told_is_the_projects() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'\nversion = "{metadata.SERVER_VERSION}"\n' in project
