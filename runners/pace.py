"""How long things take here: averages of what they took."""

from __future__ import annotations

_WEIGHT = 0.2  # of a new measurement
_LATELY, _USUALLY = 5, 30  # hops: of less than a second, and of some seconds


class Mean:
    """Of the first `last` measurements, and from then on mostly of about as many."""

    def __init__(self, last: int) -> None:
        self._last, self._count = last, 0
        self.value = 0.0  # before the first one

    def saw(self, value: float) -> None:
        self._count = min(self._count + 1, self._last)
        self.value += (value - self.value) / self._count


class Pace:
    """Seconds of work for so many mel frames, vocoder included; 0 before the first measurement."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """What was measured so far."""
        self._lately, self._usually = Mean(_LATELY), Mean(_USUALLY)

    def took(self, frames: int, seconds: float) -> None:
        if frames:
            self._lately.saw(seconds / frames)
            self._usually.saw(seconds / frames)

    def seconds(self, frames: int) -> float:
        """Expected of the next."""
        return frames * self._lately.value

    def usual_seconds(self, frames: int) -> float:
        """Expected of many."""
        return frames * self._usually.value


class Spread:
    """What a time that varies comes to, and by how much it varies: as TCP estimates a round trip (RFC 6298)."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self._deviation = 0.0

    def saw(self, seconds: float) -> None:
        if self.mean is None:
            self.mean = seconds
            return
        error = seconds - self.mean
        self._deviation += _WEIGHT * (abs(error) - self._deviation)
        self.mean += _WEIGHT * error

    @property
    def high(self) -> float:
        """What it hardly exceeds; 0 before the first measurement."""
        return (self.mean or 0.0) + self._deviation
