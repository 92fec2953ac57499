"""A soak's verdict fails for what it is there to find: growth, load that stays, another request's sound."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from audio.encode import encode_whole
from benchmarks.soaking.lives import unchunked
from benchmarks.soaking.mix import Mix, Repertoire
from benchmarks.soaking.requests import OK, Answer, Http, Ways
from benchmarks.soaking.sounds import difference, recording, samples_of
from benchmarks.soaking.verdict import Rest, lines, never_at_rest

RATE = 24_000
NOWHERE = Ways("http://127.0.0.1:9", "127.0.0.1:9")  # what follows a script needs no way to a server


def _tone(hertz: float, seconds: float = 0.5) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * RATE)) / RATE)).astype(np.float32)


def _pcm(samples: np.ndarray) -> bytes:
    return encode_whole("pcm", samples, RATE)


def _rests(values: Sequence[float]) -> list[Rest]:
    return [Rest(10.0 * index, index, 0.1, {"held": value}) for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "step", "flat"),
    [
        ([100, 300, 500, 500, 500, 500], 0.0, True),  # what comes in the warm-up is no growth
        ([500, 500, 500, 503, 497, 501], 0.0, True),
        ([500, 500, 500, 505, 510, 515], 0.0, False),
        ([500, 500, 500, 495, 480, 470], 0.0, True),
        ([500, 500, 500, 560, 500, 500], 0.0, True),  # a peak that goes is none either
        ([30, 30, 30, 30, 31, 30], 1.0, True),
        ([30, 30, 30, 31, 32, 33], 1.0, False),
        ([0, 0, 0, 1, 2, 3], 1.0, False),
    ],
)
def test_flat_is_what_does_not_grow_after_the_warm_up(values: list[float], step: float, flat: bool) -> None:
    (line,) = lines(_rests(values), {"held": step})
    assert line.flat is flat


def test_a_service_that_never_comes_to_rest_is_told_of() -> None:
    assert never_at_rest([Rest(10, 5, 0.2, {}), Rest(20, 9, None, {})]) == [
        "20 s after the round that ended at 20 s the service was not at rest"
    ]


def test_differences_are_those_of_the_samples() -> None:
    tone = _tone(200)
    rounded = tone.copy()
    rounded[::97] += 1 / 32_768
    assert difference(_pcm(tone), _pcm(tone), "pcm") == 0
    assert difference(_pcm(rounded), _pcm(tone), "pcm") == pytest.approx(1 / 32_768, rel=1e-3)
    assert difference(_pcm(tone[:-1]), _pcm(tone), "pcm") == np.inf
    assert difference(_pcm(_tone(210)), _pcm(tone), "pcm") > 0.3
    for audio_format in ("wav", "flac"):
        one, other = (encode_whole(audio_format, samples, RATE) for samples in (tone, rounded))
        assert 0 < difference(one, other, audio_format) < 1e-4


def test_another_gain_is_another_recording_of_the_same_speech() -> None:
    one, other = recording(), recording(gain=1.0001)
    assert one != other
    assert np.abs(samples_of(one, "wav") - samples_of(other, "wav")).max() < 1e-4


@dataclass
class Scripted:
    """Gives `answers`, and the last one again and again."""

    name: str
    answers: Sequence[Answer]
    audio_format: str = "pcm"
    fixed: bool = True
    asked: itertools.count = field(default_factory=itertools.count)

    async def ask(self, ways: Ways) -> Answer:
        return self.answers[min(next(self.asked), len(self.answers) - 1)]

    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        """At once."""


def _scripted(name: str, *waves: np.ndarray) -> Scripted:
    return Scripted(name, [Answer(OK, (_pcm(wave),)) for wave in waves])


async def _faults(speaking: Scripted) -> list[str]:
    mix = Mix(
        0,
        lambda audio_format: 2e-3,
        Repertoire(
            before=(),
            speaking=(speaking, _scripted("neighbour", _tone(330))),
            erring=(Scripted("wrong", [Answer("400 invalid_json")]),),
            slow=_scripted("slow", _tone(110)),
            life=_scripted("life", _tone(550)),
            left=(),
            rubbish=(Scripted("rubbish", []),),
            new=lambda number: _scripted("new", _tone(70)),
        ),
    )
    await mix.alone(NOWHERE)
    await mix.round(NOWHERE, 2, 0, 0.2)
    return mix.tally.faults


async def test_rounding_is_no_fault() -> None:
    assert await _faults(_scripted("one", _tone(220), _tone(220) + np.float32(1e-4))) == []


@pytest.mark.parametrize(
    ("wave", "fault"),
    [
        (_tone(330), "one: 0.5"),  # the neighbour's
        (_tone(220, 0.49), "one: inf"),
        (np.concatenate([_tone(220)[:-240], np.zeros(240, np.float32)]), "one: 0.2"),  # 10 ms are missing
    ],
)
async def test_another_sound_is_a_fault(wave: np.ndarray, fault: str) -> None:
    found = await _faults(_scripted("one", _tone(220), wave))
    assert found
    assert all(sentence.startswith(fault) for sentence in found), found[0]


async def test_an_error_instead_of_speech_is_a_fault() -> None:
    failing = Scripted("one", [Answer(OK, (_pcm(_tone(220)),)), Answer("500 internal_error")])
    found = await _faults(failing)
    assert set(found) == {"one: answered 500 internal_error, alone 200"}


async def test_requests_that_sound_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbour and one sound the same"):
        await _faults(_scripted("one", _tone(330)))


def test_the_sizes_of_chunks_are_no_sound() -> None:
    assert unchunked(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n") == b"abc0123456789"


@pytest.mark.parametrize("reset", [True, False])
async def test_who_leaves_by_a_reset_leaves_no_end(reset: bool) -> None:
    ends: asyncio.Queue[object] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ends.put_nowait(await reader.read(-1))
        except ConnectionResetError as error:
            ends.put_nowait(error)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        ways = Ways(f"http://127.0.0.1:{port}", "127.0.0.1:9")
        await Http("left", "/spoken", b"{}").leave(ways, 0.05, reset)
        end = await asyncio.wait_for(ends.get(), 5)
    if reset:
        assert isinstance(end, ConnectionResetError)
    else:
        assert isinstance(end, bytes)
        assert end.startswith(b"POST /spoken HTTP/1.1\r\n")
        assert end.endswith(b"\r\n\r\n{}")
