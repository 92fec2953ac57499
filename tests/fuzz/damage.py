"""How what arrives is damaged: bytes changed and cut off, and values and messages that stand where others should."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import strategies as st

TIMES = int(os.environ.get("COSYSERVE_FUZZ") or 1)
"""How many times as many examples as in the default run."""
HANG_SECONDS = 20.0
"""What has not ended by then never will, however busy the machine is."""

Changes = list[tuple[float, bytes, int]]
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 8)), max_size=6)
"""Where, what is put there, and how many bytes it takes the place of."""

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["", "0", "nan", "1e999", "../../x", "\x00", "a\r\nb: c", "<speak>", "data:audio/wav;base64,AAAA"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
"""A value of JSON that hardly anything asks for."""

Edits = list[tuple[float, float, Any]]
EDITS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), JUNK), max_size=4)
"""Which message, which value in it, and what takes its place."""


def damaged(good: bytes, changes: Changes, kept: float) -> bytes:
    data = bytearray(good if kept > 0.5 else good[: int(2 * kept * len(good))])
    for place, content, replaced in changes:
        at = int(place * len(data))
        data[at : at + replaced] = content
    return bytes(data)


def edited(message: dict[str, Any], where: float, junk: Any) -> dict[str, Any]:
    """A copy with one of its values, at any depth, replaced: `where` 0 is the first, 1 the last."""
    paths = list(_paths(message))
    *outer, last = paths[min(int(where * len(paths)), len(paths) - 1)]
    copy = inner = dict(message)
    for name in outer:
        inner[name] = inner = dict(inner[name])
    inner[last] = junk
    return copy


def _paths(values: dict[str, Any]) -> list[tuple[str, ...]]:
    """Of all values, and of one more that nobody knows in each object."""
    found: list[tuple[str, ...]] = [("unheard_of",)]
    for name, value in values.items():
        found.append((name,))
        if isinstance(value, dict):
            found.extend((name, *path) for path in _paths(value))
    return found
