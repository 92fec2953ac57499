"""Validation by a custom resource's own schema, as an API server does it: types, enums, and no unknown field.

The schemas are not part of the project. COSYSERVE_CRD_SCHEMAS names a folder of them, one openAPIV3Schema as JSON for
each kind: `<Kind>.<group>.<version>.json`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

VARIABLE = "COSYSERVE_CRD_SCHEMAS"
# Kubernetes' extensions and what only documents; "format" holds names (int32, date-time) that bind no value here.
_SILENT = ("default", "description", "example", "format", "title")
_OF_ONE = ("items", "not")
_OF_MANY = ("allOf", "anyOf", "oneOf")


def schema_folder() -> Path:
    """Skips the test where no folder of schemas is named."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no folder of CRD schemas")
    return Path(os.environ[VARIABLE])


def has_schema(item: dict[str, Any]) -> bool:
    return _file(item).is_file()


def errors(item: dict[str, Any]) -> list[str]:
    """What the API server would say about an object whose schema is in the folder."""
    schema = closed(json.loads(_file(item).read_text()))
    schema["properties"]["metadata"] = {"type": "object"}  # checked by the API server's own rules, not by the schema
    found = Draft202012Validator(schema).iter_errors(item)
    return [f"{error.json_path}: {error.message}" for error in found]


def closed(schema: Any) -> Any:
    """A structural schema as JSON Schema in which every object rejects fields that it does not name."""
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if not key.startswith("x-") and key not in _SILENT}
    for key in _OF_ONE:
        if key in result:
            result[key] = closed(result[key])
    for key in _OF_MANY:
        if key in result:
            # Branches only add conditions: what fields there are says the schema around them.
            result[key] = [{**closed(branch), "additionalProperties": True} for branch in result[key]]
    if "properties" in result:
        result["properties"] = {name: closed(value) for name, value in result["properties"].items()}
        result.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    if isinstance(result.get("additionalProperties"), dict):
        result["additionalProperties"] = closed(result["additionalProperties"])
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
    return result


def _file(item: dict[str, Any]) -> Path:
    group, _, version = item["apiVersion"].rpartition("/")
    return schema_folder() / f"{item['kind']}.{group}.{version}.json"
