"""The load of a soak: each request alone first, then everything at once and at random, compared with that."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.soaking.lives import HALF_SAVED, LIFE_REQUESTS, SlowReader, VoiceLife, rubbish, saving
from benchmarks.soaking.repertoire import (
    SAVED,
    erring,
    listened_slowly,
    saved_recording,
    speaking,
    with_new_recording,
)
from benchmarks.soaking.requests import OK, Answer, Asked, Leaving, Request, Ways
from benchmarks.soaking.sounds import difference

NEW_RECORDINGS, AT_ONCE = 70, 10
"""More than the service keeps: from then on an old one goes when a new one comes."""
WEIGHTS = {
    "answered": 40,
    "left": 22,
    "reset": 10,
    "refused": 20,
    "rubbish": 5,
    "new recording": 3,
    "slow reader": 1,
    "voice's life": 1,
}
KEPT = 10
"""Answers beyond the tolerance, for whoever looks for the cause."""
DISTINCT = 0.1
"""Of full scale: the least by which different requests differ."""
_MOMENT = 1.2  # times as long as the answer took alone: the latest moment to leave, which is often after the end
_RUBBISH_SECONDS = 0.5


@dataclass(frozen=True)
class Alone:
    """An answer of the quiet server, and how many seconds it took."""

    answer: Answer
    seconds: float


@dataclass
class Tally:
    """`asked`: requests by kind. `differences`: by name of the request, of each answer the greatest to the answer
    alone. `faults`: a sentence each. `different`: the first answers beyond the tolerance, beside those alone."""

    asked: Counter[str] = field(default_factory=Counter)
    differences: dict[str, list[float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    different: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.asked.total()


@dataclass(frozen=True)
class Repertoire:
    """What is asked for. `before`: once, so that the others can be answered. `speaking` is answered with speech,
    `erring` refused, `slow` spoken to a reader who takes time; nobody ever waits for `left` and `rubbish`. `new`:
    with a recording that nobody has sent before, by number."""

    before: Sequence[Asked] = field(default_factory=lambda: (saving(SAVED, saved_recording()),))
    speaking: Sequence[Request] = field(default_factory=speaking)
    erring: Sequence[Asked] = field(default_factory=erring)
    slow: Asked = field(default_factory=lambda: SlowReader(listened_slowly()))
    life: Asked = field(default_factory=VoiceLife)
    left: Sequence[Request] = field(default_factory=lambda: (listened_slowly(), saving(HALF_SAVED, saved_recording())))
    rubbish: Sequence[Leaving] = field(default_factory=rubbish)
    new: Callable[[int], Asked] = with_new_recording

    @property
    def sounds(self) -> tuple[Asked, ...]:
        return (*self.speaking, self.slow, self.life)


class Mix:
    """`tolerance`: the greatest difference of two samples that rounding explains, by audio format."""

    def __init__(self, seed: int, tolerance: Callable[[str], float], repertoire: Repertoire | None = None) -> None:
        self.tally = Tally()
        self._seed, self._tolerance = seed, tolerance
        self._repertoire = repertoire or Repertoire()
        self._alone: dict[str, Alone] = {}
        self._new = 0

    async def alone(self, ways: Ways) -> None:
        """Ask for everything, one after the other, and remember the answers. Raises ValueError where one is not what
        such a request should get, or two have the same sound, which would hide that they were mistaken."""
        for request in (*self._repertoire.before, *self._repertoire.sounds):
            if (alone := await self._hear(ways, request)).answer.outcome != OK:
                raise ValueError(f"{request.name} was answered {alone.answer.outcome}")
        for request in self._repertoire.erring:
            if (outcome := (await self._hear(ways, request)).answer.outcome) == OK or outcome.startswith("5"):
                raise ValueError(f"{request.name} was answered {outcome}")
        self._check_distinct()

    async def fill_caches(self, ways: Ways) -> None:
        for _ in range(NEW_RECORDINGS // AT_ONCE):
            for answer in await asyncio.gather(*(self._next_new().ask(ways) for _ in range(AT_ONCE))):
                if answer.outcome != OK:
                    raise ValueError(f"a new recording was answered {answer.outcome}")

    async def round(self, ways: Ways, clients: int, number: int, seconds: float) -> None:
        """So many clients at once ask for anything at all, until `seconds` have passed and what was asked is done."""
        until = time.monotonic() + seconds
        generators = [random.Random(f"{self._seed} {number} {client}") for client in range(clients)]
        await asyncio.gather(*(self._client(ways, generator, until) for generator in generators))

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _hear(self, ways: Ways, request: Asked) -> Alone:
        began = time.monotonic()
        alone = Alone(await request.ask(ways), time.monotonic() - began)
        self._alone[request.name] = alone
        return alone

    def _check_distinct(self) -> None:
        fixed = [request for request in self._repertoire.sounds if request.fixed]
        for index, one in enumerate(fixed):
            for other in fixed[:index]:
                alike = one.audio_format == other.audio_format
                if alike and self._difference(one, self._alone[other.name].answer) < DISTINCT:
                    raise ValueError(f"{one.name} and {other.name} sound the same")

    async def _client(self, ways: Ways, generator: random.Random, until: float) -> None:
        kinds, weights = list(WEIGHTS), list(WEIGHTS.values())
        while time.monotonic() < until:
            (kind,) = generator.choices(kinds, weights)
            self.tally.asked[kind] += LIFE_REQUESTS if kind == "voice's life" else 1
            try:
                await self._one(ways, kind, generator)
            except Exception as error:  # whatever it is, it is the service's, and the soak goes on
                self.tally.faults.append(f"{kind}: {type(error).__name__}: {error}")

    async def _one(self, ways: Ways, kind: str, generator: random.Random) -> None:
        repertoire = self._repertoire
        match kind:
            case "answered":
                await self._compare(ways, generator.choice(repertoire.speaking))
            case "refused":
                await self._compare(ways, generator.choice(repertoire.erring))
            case "slow reader":
                await self._compare(ways, repertoire.slow)
            case "voice's life":
                await self._compare(ways, repertoire.life)
            case "new recording":
                if (outcome := (await self._next_new().ask(ways)).outcome) != OK:
                    self.tally.faults.append(f"{kind}: answered {outcome}")
            case "rubbish":
                rubbish = generator.choice(repertoire.rubbish)
                await rubbish.leave(ways, generator.uniform(0, _RUBBISH_SECONDS), generator.random() < 0.5)
            case _:
                request = generator.choice((*repertoire.speaking, *repertoire.left))
                known = self._alone.get(request.name)
                latest = _MOMENT * known.seconds if known is not None else _RUBBISH_SECONDS
                await request.leave(ways, generator.uniform(0, latest), reset=kind == "reset")

    async def _compare(self, ways: Ways, request: Asked) -> None:
        answer, expected = await request.ask(ways), self._alone[request.name].answer
        if answer.outcome != expected.outcome:
            self.tally.faults.append(f"{request.name}: answered {answer.outcome}, alone {expected.outcome}")
        elif not request.fixed:
            if not answer.files or not all(map(len, answer.files)):
                self.tally.faults.append(f"{request.name}: no sound")
        elif answer.files:
            found = self._difference(request, answer)
            self.tally.differences.setdefault(request.name, []).append(found)
            if not found <= self._tolerance(request.audio_format):
                self.tally.faults.append(f"{request.name}: {found:g} of full scale from the same request alone")
                if len(self.tally.different) < KEPT:
                    sounds = {"answer": b"".join(answer.files), "alone": b"".join(expected.files)}
                    self.tally.different.append((request.name, sounds))

    def _difference(self, request: Asked, answer: Answer) -> float:
        expected = self._alone[request.name].answer.files
        if len(answer.files) != len(expected):
            return float("inf")
        pairs: Sequence[tuple[bytes, bytes]] = list(zip(answer.files, expected, strict=True))
        return max(difference(one, other, request.audio_format) for one, other in pairs)

    def _next_new(self) -> Asked:
        self._new += 1
        return self._repertoire.new(self._new)
