"""What one API key may do: requests per second and minute, requests at once, characters per day."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

from api.errors import ApiError

_DAY = 86_400.0
MAX_METERS = 10_000


@dataclass(frozen=True)
class KeyLimits:
    """None: no limit."""

    requests_per_second: int | None = None
    requests_per_minute: int | None = None
    concurrent: int | None = None
    characters_per_day: int | None = None


def parse_limits(words: list[str], default: KeyLimits) -> KeyLimits:
    """`default` with what `name=number` words say otherwise; `none` lifts a limit. Raises ValueError, a sentence."""
    values = {field.name: getattr(default, field.name) for field in fields(KeyLimits)}
    for word in words:
        name, _, value = word.partition("=")
        if name not in values:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(values)}")
        if value != "none" and not (value.isascii() and value.isdigit() and len(value) < 16 and int(value)):
            raise ValueError(f"{name} must be a whole number above 0, or none")
        values[name] = None if value == "none" else int(value)
    return KeyLimits(**values)


class Bucket:
    """`capacity` tokens, regained evenly over `seconds`."""

    def __init__(self, capacity: int, seconds: float, clock: Callable[[], float]) -> None:
        self.capacity, self._rate, self._clock = capacity, capacity / seconds, clock
        self._level, self._at = float(capacity), clock()

    def level(self) -> float:
        now = self._clock()
        self._level = min(float(self.capacity), self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level

    def wait(self, tokens: int) -> float:
        """Seconds until there are `tokens`; 0 if there are."""
        return max(0.0, (tokens - self.level()) / self._rate)

    def take(self, tokens: int) -> None:
        self._level = self.level() - tokens

    def headers(self, unit: str) -> dict[str, str]:
        """As OpenAI names them; the reset is in seconds until the bucket is full."""
        return {
            f"x-ratelimit-limit-{unit}": str(self.capacity),
            f"x-ratelimit-remaining-{unit}": str(int(self.level())),
            f"x-ratelimit-reset-{unit}": f"{self.wait(self.capacity):.3f}s",
        }


class Meter:
    """What one key has used. Kept in this process: replicas count for themselves, and a restart begins anew."""

    def __init__(self, limits: KeyLimits, clock: Callable[[], float] = time.monotonic, name: str = "") -> None:
        self.name = name
        self._clock = clock
        self.running = 0
        self.adopt(limits)

    def adopt(self, limits: KeyLimits) -> None:
        """Go on under other limits."""
        self.limits = limits
        rates = ((limits.requests_per_second, 1.0), (limits.requests_per_minute, 60.0))
        self._requests = [Bucket(count, seconds, self._clock) for count, seconds in rates if count is not None]
        day = limits.characters_per_day
        self._characters = None if day is None else Bucket(day, _DAY, self._clock)

    @contextmanager
    def request(self) -> Iterator[None]:
        """One request, from its first to its last byte. Raises ApiError rate_limited."""
        limit = self.limits.concurrent
        if limit is not None and self.running >= limit:
            raise ApiError(429, "rate_limited", f"This key may have {limit} requests at once, and has them.")
        self.count_request()
        self.running += 1
        token = _METER.set(self)
        try:
            yield
        finally:
            _METER.reset(token)
            self.running -= 1

    def count_request(self) -> None:
        """One more of those that a message brings several of. Raises ApiError rate_limited."""
        if wait := max((bucket.wait(1) for bucket in self._requests), default=0.0):
            message = f"This key is over its rate of requests. Try again in {wait:.1f} s."
            raise ApiError(429, "rate_limited", message, retry_after=math.ceil(wait))
        for bucket in self._requests:
            bucket.take(1)

    def spend(self, characters: int) -> None:
        """Raises as `check`."""
        self.check(characters)
        if self._characters is not None:
            self._characters.take(characters)

    def check(self, characters: int) -> None:
        """Raises ApiError rate_limited, and input_too_long for more than a day's worth at once."""
        if self._characters is None:
            return
        if characters > self._characters.capacity:
            message = f"The text has {characters:,} characters; this key may speak {self._characters.capacity:,} a day."
            raise ApiError(400, "input_too_long", message, "input")
        if wait := self._characters.wait(characters):
            left = int(self._characters.level())
            message = f"The text has {characters:,} characters; of this key's day {left:,} are left."
            raise ApiError(429, "rate_limited", message, "input", retry_after=math.ceil(wait))

    def headers(self) -> dict[str, str]:
        """`x-ratelimit-*` of the limits that there are: of requests, those of the one that is nearer."""
        headers: dict[str, str] = {}
        if self._requests:
            headers |= min(self._requests, key=lambda bucket: bucket.level() / bucket.capacity).headers("requests")
        if self._characters is not None:
            headers |= self._characters.headers("characters")
        return headers


class Meters:
    """One for each name. Of more names than `MAX_METERS`, those that were asked for longest ago begin anew."""

    def __init__(self) -> None:
        self._meters: OrderedDict[str, Meter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, name: str, limits: KeyLimits) -> Meter:
        meter = self._meters.setdefault(name, Meter(limits, name=name))
        self._meters.move_to_end(name)
        if meter.limits != limits:
            meter.adopt(limits)
        while len(self._meters) > MAX_METERS:
            oldest, idle = next(iter(self._meters.items()))
            self._meters.move_to_end(oldest)
            if idle.running:  # it would have its places twice
                break
            del self._meters[oldest]
        return meter


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def tenant() -> str:
    """The name of the running request's key; "" where there are no keys."""
    return "" if (meter := _METER.get()) is None else meter.name


def check_characters(count: int) -> None:
    """Whether the key of the running request, if it has one, may have `count` more. Raises as `Meter.check`."""
    if (meter := _METER.get()) is not None:
        meter.check(count)


def spend_characters(count: int) -> None:
    """Charge `count` characters of text to the key of the running request, if it has one. Raises as `Meter.check`."""
    if (meter := _METER.get()) is not None:
        meter.spend(count)


def count_request() -> None:
    """Charge one more request to the key of the running one, if it has one. Raises ApiError rate_limited."""
    if (meter := _METER.get()) is not None:
        meter.count_request()
