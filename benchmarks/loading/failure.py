"""How a request fails: a kind that can be counted, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """Kinds:

    `connect`     no connection came about
    `timeout`     not at its end within the time given
    `http_<N>`    answered with status N
    `not_audio`   answered 200 with JSON, HTML or other text
    `bad_audio`   answered 200 with audio that cannot be counted: compressed, or a broken WAV header
    `no_audio`    ended well, but without audio
    `broken`      the connection, or the audio that was announced, ended too early
    `error_event` an error among server-sent events
    `protocol`    no HTTP that can be understood
    """

    kind: str
    message: str


class RequestFailed(Exception):  # noqa: N818 - what happened, not what is wrong here
    """`retry_after`: seconds, where the server names them."""

    def __init__(self, kind: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)
        self.retry_after = retry_after
