"""How long synthesis takes here: an average of what it took."""

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
