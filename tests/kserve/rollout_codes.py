"""The codes of every error that the project's code raises, told apart by whose fault the status says it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where code and status stand in a call, and the status where none is given.
CALLS = {
    "ApiError": (1, 0, None),
    "RequestError": (0, 2, 400),
    "_failure": (0, 2, 400),
    "TextError": (0, None, 400),
    "AudioError": (0, None, 400),
}
# As api/errors.py turns it into a response; every other AudioError is a bad reference.
SERVER_AUDIO_ERRORS = {"nonfinite_audio"}


def error_codes() -> tuple[frozenset[str], frozenset[str]]:
    """Codes of the server's faults (429 and 5xx) and of the client's (the other 4xx)."""
    found = {pair for folder in ("api", "audio", "text", "runners") for pair in _codes(ROOT / folder)}
    server = frozenset(code for code, status in found if status == 429 or status >= 500)
    return server, frozenset(code for code, status in found if status != 429 and status < 500)


def _codes(folder: Path) -> Iterator[tuple[str, int]]:
    """Each code with its status; calls that pass another error's on are left out."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or (name := _name(node.func)) not in CALLS:
                continue
            code_at, status_at, default = CALLS[name]
            code = _constant(node, code_at, "code")
            status = default if status_at is None else _constant(node, status_at, "status") or default
            if isinstance(code, str):
                assert isinstance(status, int), f"{path}:{node.lineno}: {code} has no status that can be read"
                yield code, 500 if code in SERVER_AUDIO_ERRORS else status


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _constant(call: ast.Call, position: int, keyword: str) -> object:
    values = [item.value for item in call.keywords if item.arg == keyword] or call.args[position : position + 1]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None
