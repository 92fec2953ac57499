"""What ends a rollout command: each error is one sentence for the person at the terminal."""

from __future__ import annotations


class RolloutError(Exception):
    """What ends a command, as one sentence for the person at the terminal."""


class UnavailableError(RolloutError):
    """The API could not be reached or had a fault of its own; the same call may work later."""


class ConflictError(RolloutError):
    """Somebody else wrote first: read again and decide again."""


class NotReachedError(RolloutError):
    """What was written did not come to be: it failed, took too long, or went away."""


class StoppedError(RolloutError):
    """The analysis ended where the rollout stands; it was not rolled back."""
