"""The one error that audio raises: a stable code for programs and a sentence for people."""

from __future__ import annotations


class AudioError(Exception):
    """Audio that cannot be used.

    `code` is stable and meant for programs (`ref_audio_too_long`, ...); `message` is a sentence that names the
    limit which was crossed and never repeats the uploaded bytes.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[AudioError], tuple[str, str]]:
        """Survive pickling with both fields, because errors cross process boundaries."""
        return type(self), (self.code, self.message)
