"""README's table of error codes has every code that is raised, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "service.py",
    *(path for part in ("api", "audio", "text", "runners") for path in ROOT.glob(f"{part}/**/*.py")),
]
# The errors that reach a client, and which of their arguments is the code.
POSITIONS = {"ApiError": 1, "RequestError": 0, "TextError": 0, "AudioError": 0}


def _told() -> set[str]:
    table = re.findall(r"^\| (?:\d{3}|any other).*? \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return set(re.findall(r"`([a-z0-9_]+)`", " ".join(table)))


def _trees() -> Iterator[ast.AST]:
    for path in SOURCES:
        yield ast.parse(path.read_text())


def _strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _raised() -> set[str]:
    """The literals among what is passed as a code; one that is passed on from another error has been found there."""
    found = set()
    for call in (node for tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        position = POSITIONS.get(name)
        if position is None:
            continue
        codes = [keyword.value for keyword in call.keywords if keyword.arg == "code"] + call.args[
            position : position + 1
        ]
        found |= {code for node in codes for code in _strings(node)}
    return found


def test_every_code_that_is_raised_is_in_the_readme() -> None:
    raised = _raised()
    assert len(raised) > 30
    assert {"answer_too_long", "voice_not_found", "ref_audio_silent", "input_empty", "overloaded"} <= raised
    assert raised - _told() == set()


def test_every_code_in_the_readme_is_in_the_sources() -> None:
    assert _told() - set().union(*map(_strings, _trees())) == set()
