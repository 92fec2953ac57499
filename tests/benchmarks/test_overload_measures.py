"""What the overload benchmark makes of what was heard."""

from __future__ import annotations

import pytest

from benchmarks.loading.client import Arrival, Speech
from benchmarks.loading.failure import Failure
from benchmarks.loading.levels import Level, Open
from benchmarks.overload import RAMP_SECONDS, goodput, recovered_after

BEGAN = 100.0


def speech(asked: float, *arrivals: tuple[float, float], refused: bool = False) -> Speech:
    failure = Failure("http_429", "Too much.") if refused else None
    heard = tuple(Arrival(at, audio) for at, audio in arrivals)
    return Speech(BEGAN + asked, BEGAN + asked + 9.0, heard, failure, int(refused))


@pytest.mark.parametrize(
    ("one", "audio"),
    [
        (speech(4.0, (0.5, 2.0), (1.0, 1.0)), 3.0),
        (speech(4.0, (3.1, 2.0)), 0.0),  # too late
        (speech(4.0, (0.5, 1.0), (1.9, 1.0)), 0.0),  # its listener ran dry
        (speech(4.0, (0.5, 1.0), (1.55, 1.0)), 2.0),  # hardly
        (speech(4.0, refused=True), 0.0),
        (speech(RAMP_SECONDS - 1.0, (0.5, 2.0), (1.5, 1.0)), 1.0),  # half of it while the level filled
        (speech(12.0, (0.5, 2.0), (1.5, 1.0)), 2.0),  # the rest after the load
    ],
)
def test_goodput_is_what_was_good_for_a_listener_while_the_load_lasted(one: Speech, audio: float) -> None:
    level = Level(Open(1.0), [one], began=BEGAN)
    assert goodput(level, 13.0, 3.0) == pytest.approx(audio / 10.0)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([0.2] * 4, 0.0), ([0.9, 0.2, 0.2, 0.2], 1.0), ([0.2, 0.2, 0.9, 0.2, 0.2, 0.2], 3.0), ([0.2, 0.9] * 3, None)],
)
def test_a_service_has_recovered_with_the_first_of_some_fast_answers_in_a_row(
    seconds: list[float], expected: float | None
) -> None:
    probes = [speech(float(index), (ttfa, 1.0)) for index, ttfa in enumerate(seconds)]
    assert recovered_after(probes, BEGAN, 0.3) == expected
