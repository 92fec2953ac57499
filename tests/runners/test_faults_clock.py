"""The wall clock may jump: what lasts is measured by the other one."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

from launch.server import ROOT
from tests.runners.voice_folder import CONSENT, conditioning, store

SERVING = ("api", "audio", "models", "runners", "text")
DATES = {"time.time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
USES = {
    "api/dictionaries.py": "created_at",
    "runners/voice_store.py": "created_at",
    "runners/record_folder.py": "the age of a file, by its own time",
}


def uses(path: Path) -> list[str]:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [ast.unparse(call) for call in calls]
    return [name for name in names if any(name == date or name.endswith("." + date) for date in DATES)]


def test_only_dates_are_taken_from_the_wall_clock() -> None:
    found = {
        path.relative_to(ROOT).as_posix() for folder in SERVING for path in (ROOT / folder).rglob("*.py") if uses(path)
    }
    assert found == set(USES)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_voices_are_kept_and_seen_whatever_the_clock_says(
    jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = store(tmp_path), store(tmp_path)
    mine.create("before", conditioning(), consent=CONSENT)
    assert [voice.name for voice in other.list()] == ["before"]
    now = time.time() + jump
    monkeypatch.setattr(time, "time", lambda: now)
    mine.create("after", conditioning(1), consent=CONSENT)
    monkeypatch.setattr("runners.record_folder.LOOK_SECONDS", 0.0)
    deadline = time.monotonic() + 5
    while len(other.list()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for voice in ("before", "after"):
        assert other.get(voice) is not None
