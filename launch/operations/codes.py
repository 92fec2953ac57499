"""The codes that a caller can be answered with: read from where they are raised, and explained here."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from launch.server import ROOT

SOURCES = (ROOT / "service.py", *(ROOT / folder for folder in ("api", "audio", "runners", "text")))
# Where code and status stand in a call, and the status where none is given. Each exception ends as what
# `api.errors.as_api_error` makes of it.
_CALLS = {
    "ApiError": (1, 0, None),
    "StalledError": (1, 0, None),
    "RequestError": (0, 2, 400),
    "_failure": (0, 2, 400),
    "TextError": (0, None, 400),
    "AudioError": (0, None, 400),
}
_SERVER_AUDIO_ERRORS = {"nonfinite_audio"}


def raised() -> dict[str, frozenset[int]]:
    """The statuses of each code, as literals in the code; none where it is passed on with whatever status."""
    found: dict[str, set[int]] = defaultdict(set)
    for path in python_files():
        for code, status in _codes(ast.parse(path.read_text())):
            found[code] |= set() if status is None else {status}
    return {code: frozenset(found[code]) for code in sorted(found)}


def python_files() -> Iterator[Path]:
    for source in SOURCES:
        yield from [source] if source.is_file() else sorted(source.rglob("*.py"))


def _codes(tree: ast.AST) -> Iterator[tuple[str, int | None]]:
    for node in ast.walk(tree):
        name = _name(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in _CALLS:
            continue
        code_at, status_at, default = _CALLS[name]
        statuses: set[int | None] = {default}
        if status_at is not None:
            statuses = {*_integers(_argument(node, status_at, "status"))} or statuses
        for code in _strings(_argument(node, code_at, "code")):
            for status in statuses:
                yield code, 500 if code in _SERVER_AUDIO_ERRORS else status


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    values = [item.value for item in call.keywords if item.arg == keyword] or call.args[position : position + 1]
    return values[0] if values and not isinstance(values[0], ast.Starred) else None


def _strings(node: ast.expr | None) -> set[str]:
    return {n.value for n in _constants(node) if isinstance(n.value, str)}


def _integers(node: ast.expr | None) -> set[int]:
    return {n.value for n in _constants(node) if isinstance(n.value, int)}


def _constants(node: ast.expr | None) -> Iterator[ast.Constant]:
    if node is not None:
        yield from (n for n in ast.walk(node) if isinstance(n, ast.Constant))


def table(meanings: Mapping[str, tuple[str, str]]) -> list[tuple[str, str, str, str]]:
    """(status, code, meaning, what to do) of every code that is raised, by status.

    Raises KeyError for a code without a meaning, ValueError for a meaning without a code.
    """
    found = raised()
    if unknown := meanings.keys() - found.keys():
        raise ValueError(f"nothing raises {', '.join(sorted(unknown))}")
    rows = [
        (", ".join(map(str, sorted(statuses))) or "any other", f"`{code}`", *meanings[code])
        for code, statuses in found.items()
    ]
    return sorted(rows)
