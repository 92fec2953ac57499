"""Writes the tables of docs/operations.md anew, from the code: `python -m launch.operations`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from launch.operations import codes, limits, metrics, settings
from launch.operations.meanings import MEANINGS
from launch.server import ROOT

PAGE = ROOT / "docs/operations.md"


def tables() -> dict[str, str]:
    """Markdown by the name of the place that it goes to."""
    variables = ("variable", "default", "meaning")
    return {
        "metrics": _table(("metric", "kind", "labels", "meaning"), metrics.table()),
        "settings": _table(variables, [(f"`{one.name}`", one.default, one.meaning) for one in settings.SERVICE]),
        "commands": _table(variables, [(f"`{one.name}`", one.default, one.meaning) for one in settings.COMMANDS]),
        "limits": _table(("limit", "how much", "beyond it"), limits.table()),
        "errors": _table(("status", "code", "meaning", "what to do"), codes.table(MEANINGS)),
    }


def filled(page: str) -> str:
    """`page` with every table between its marks."""
    for name, text in tables().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        page, count = re.subn(f"(?s){begin}.*?{end}", lambda _: f"{begin}\n{text}\n{end}", page)  # noqa: B023
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} places for {name}")
    return page


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
