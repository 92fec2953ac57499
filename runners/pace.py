"""How long things take here: averages of what they took."""

from __future__ import annotations

_WEIGHT = 0.2  # of a new measurement


class Pace:
    """Seconds of work per mel frame, vocoder included."""

    def __init__(self) -> None:
        self._per_frame: float | None = None

    def took(self, frames: int, seconds: float) -> None:
        if frames:
            rate = seconds / frames
            self._per_frame = rate if self._per_frame is None else self._per_frame + _WEIGHT * (rate - self._per_frame)

    def seconds(self, frames: int) -> float:
        """Expected for so many frames; 0 before the first measurement."""
        return frames * (self._per_frame or 0.0)


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
