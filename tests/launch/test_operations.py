"""docs/operations.md says what the code does, and its runbook names what there is."""

from __future__ import annotations

import re

import pytest

from api.received import route_of
from launch.operations import settings
from launch.operations.__main__ import PAGE, filled
from launch.operations.codes import raised, table
from launch.operations.meanings import MEANINGS
from launch.operations.metrics import declared
from runners.stages import STAGES
from tests.kserve.expressions import rules


def test_the_committed_page_is_what_the_code_gives() -> None:
    page = PAGE.read_text()
    assert filled(page) == page, "run: python -m launch.operations"


def test_every_variable_that_the_code_reads_is_a_setting() -> None:
    told = {one.name for one in (*settings.SERVICE, *settings.COMMANDS)}
    assert settings.names_in_code() == told | settings.INTERNAL.keys()


def test_a_code_without_a_meaning_and_a_meaning_without_a_code_are_found() -> None:
    with pytest.raises(KeyError):
        table({code: meaning for code, meaning in MEANINGS.items() if code != "overloaded"})
    with pytest.raises(ValueError, match="no_such_code"):
        table({**MEANINGS, "no_such_code": ("", "")})


def test_the_runbook_names_what_there_is() -> None:
    """Alerts, metrics, settings and codes, each in backticks."""
    page = PAGE.read_text()
    runbook = page[page.index("## Runbook") :]
    assert len(re.findall("^### ", runbook, re.MULTILINE)) == 10
    assert set(re.findall("CosyServe[A-Z][A-Za-z]+", runbook)) == rules().keys(), "each alert has its incident"
    series = {f"{one.name}_total" if one.kind == "Counter" else one.name for one in declared()}
    assert set(re.findall("`(cosyserve_[a-z_]+)`", runbook)) <= series
    assert set(re.findall("`(COSYSERVE_[A-Z_]+)", runbook)) <= {one.name for one in settings.SERVICE}
    words = set(re.findall("`([a-z]+(?:_[a-z]+)+)`", runbook)) - series
    assert words <= raised().keys() | set(STAGES) | {"other_model"}, words


def test_the_page_names_every_route_and_stage() -> None:
    page = PAGE.read_text()
    for path in ("/v1/audio/speech", "/v1/audio/speech/batch", "/v1/audio/voices/x/preview", "/v2/models/x/infer"):
        assert f"`{route_of({'type': 'http', 'path': path})}`" in page
    for stage in STAGES:
        assert f"`{stage}`" in page
