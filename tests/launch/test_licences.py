"""The page of licences is what its command writes: every package that the images bring, by the version pinned."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from launch.licences import PAGE, licence, page, pinned


def test_the_page_of_licences_is_current() -> None:
    written = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (.+) \|$", written, re.MULTILINE)[1:]
    assert [(name, pin) for name, pin, _ in rows] == [(one.name, one.version) for one in pinned("cpu")]
    assert not [name for name, _, terms in rows if terms == "not stated"]
    assert [one.name for one in pinned("gpu") if one.name not in re.split(r"[\s,|.]+", written)] == []


def test_the_page_says_of_each_package_what_it_states_itself() -> None:
    rows = dict(re.findall(r"^\| (\S+) \| \S+ \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    same = [one for one in pinned("cpu") if version(one.name).partition("+")[0] == one.version]
    assert len(same) > 50
    assert [(one.name, rows[one.name]) for one in same] == [(one.name, licence(one)) for one in same]


def test_a_package_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.licences.licence", lambda package: None if package.name == "numpy" else "MIT")
    with pytest.raises(SystemExit, match="numpy"):
        page()
