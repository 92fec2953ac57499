"""Read upstream's yaml recipe as data.

The recipe constructs objects through tags (`!new:`, `!name:`, `!apply:`). Here a tag constructs nothing: only
the mappings, lists and scalars below it are kept, and references such as `!ref <a> * <b>` are resolved.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from models.errors import ModelError

_MAX_REFERENCES = 20  # a longer chain of references is a circle
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def read_recipe(path: Path) -> dict[str, Any]:
    """The recipe's tree with all references resolved. Raises ModelError model_config_invalid."""
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_DataLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ModelError("model_config_invalid", f"{path} is not valid yaml: {error}") from error
    if not isinstance(tree, dict):
        raise ModelError("model_config_invalid", f"{path} holds no mapping")
    try:
        return {key: _resolve(value, tree) for key, value in tree.items()}
    except (ValueError, SyntaxError, TypeError, ZeroDivisionError) as error:
        raise ModelError("model_config_invalid", f"{path}: {error}") from error


@dataclass(frozen=True)
class _Reference:
    expression: str


class _DataLoader(yaml.SafeLoader):
    """A SafeLoader for which every unknown tag is transparent, and `1e-6` is a number as in YAML 1.2."""


def _construct_tagged(loader: _DataLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return _Reference(node.value) if suffix == "ref" else node.value or None


_DataLoader.add_multi_constructor("!", _construct_tagged)
_DataLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _resolve(value: Any, tree: dict[str, Any], depth: int = 0) -> Any:
    """`value` with every reference in it replaced by what it refers to."""
    if depth > _MAX_REFERENCES:
        raise ValueError("the references form a circle")
    if isinstance(value, dict):
        return {key: _resolve(item, tree, depth) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, tree, depth) for item in value]
    if not isinstance(value, _Reference):
        return value
    expression = value.expression.strip()
    names = re.findall(r"<([^<>]+)>", expression)
    if expression == f"<{names[0] if names else ''}>":  # a plain reference may be to a whole section
        return _resolve(_look_up(names[0], tree), tree, depth + 1)
    values = {name: _resolve(_look_up(name, tree), tree, depth + 1) for name in names}
    for name, found in values.items():
        expression = expression.replace(f"<{name}>", str(found))
    if not all(isinstance(found, (int, float)) for found in values.values()):
        return expression  # text put together, such as a path below a folder
    return _evaluate(ast.parse(expression, mode="eval").body)


def _look_up(name: str, tree: dict[str, Any]) -> Any:
    found: Any = tree
    for key in re.findall(r"[^\[\]]+", name):  # <a[b][c]> goes down into nested sections
        if not isinstance(found, dict) or key not in found:
            raise ValueError(f"`!ref <{name}>` refers to nothing")
        found = found[key]
    return found


def _evaluate(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    raise ValueError("a reference calculates only with + - * / // % and numbers")
