"""One request to an OpenAI-compatible speech server, and when its audio came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType

import aiohttp

from benchmarks.loading.failure import Failure, RequestFailed
from benchmarks.loading.formats import body_of, message_in, pcm_rate

CONNECT_SECONDS = 10.0
# Below the 5 s after which most Python servers drop an idle connection: a request must not meet its end.
KEEP_ALIVE_SECONDS = 4.0
REFUSALS = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
MAX_ERROR_BYTES = 16_384


@dataclass(frozen=True)
class Target:
    """A speech endpoint and how it is asked.

    `body`: all of the request but its `input`. `sample_rate`: of raw PCM, None to take it from the answer. `timeout`:
    seconds for a whole request. `retry`: after a refusal (429, 503) with Retry-After the request is sent again.
    """

    endpoint: str
    body: Mapping[str, object] = field(
        default_factory=lambda: MappingProxyType({"response_format": "pcm", "stream": True})
    )
    api_key: str | None = field(default=None, repr=False)
    sample_rate: int | None = None
    timeout: float = 120.0
    retry: bool = False

    def session(self) -> aiohttp.ClientSession:
        """With as many connections as there are requests at once."""
        # Compressed on the way, bytes would not be audio.
        headers = {"Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
        return aiohttp.ClientSession(connector=connector, headers=headers)


@dataclass(frozen=True)
class Arrival:
    """A piece of audio. Seconds: `at` since the request was due, `audio` of speech."""

    at: float
    audio: float


@dataclass(frozen=True)
class Speech:
    """A request and what came of it. `asked` and `ended` are on time.monotonic's clock.

    `refusals`: how often it was answered 429 or 503, the retries included. `rate_assumed`: nobody named the
    sample rate that `audio` is counted at.
    """

    asked: float
    ended: float
    arrivals: tuple[Arrival, ...]
    failure: Failure | None = None
    refusals: int = 0
    rate_assumed: bool = False

    @property
    def seconds(self) -> float:
        """From the request to the last byte."""
        return self.ended - self.asked

    @property
    def audio(self) -> float:
        """Seconds of speech."""
        return sum(arrival.audio for arrival in self.arrivals)


async def speak(session: aiohttp.ClientSession, target: Target, text: str, due: float | None = None) -> Speech:
    """Ask for `text` and listen to the end. Times count from `due` (time.monotonic's), None: from now.

    Whatever the server does is in what is returned; nothing is raised.
    """
    request = _Request(session, target, text, time.monotonic() if due is None else due)
    failure = await request.to_the_end()
    ended = time.monotonic()
    return Speech(request.due, ended, tuple(request.arrivals), failure, request.refusals, request.rate_assumed)


class _Request:
    def __init__(self, session: aiohttp.ClientSession, target: Target, text: str, due: float) -> None:
        self._session, self._target, self._text, self.due = session, target, text, due
        self._deadline = due + target.timeout
        self.arrivals: list[Arrival] = []
        self.refusals = 0
        self.rate_assumed = False

    async def to_the_end(self) -> Failure | None:
        while True:
            try:
                await self._attempt()
            except RequestFailed as failed:
                wait = failed.retry_after
                if self._target.retry and wait is not None and time.monotonic() + wait < self._deadline:
                    await asyncio.sleep(wait)
                    continue
                return self._without_key(failed.failure)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
                return self._without_key(_failure(error, self._target.timeout))
            return None

    async def _attempt(self) -> None:
        left = max(0.001, self._deadline - time.monotonic())
        async with self._session.post(
            self._target.endpoint,
            json={**self._target.body, "input": self._text},
            timeout=aiohttp.ClientTimeout(total=left, sock_connect=min(left, CONNECT_SECONDS)),
            allow_redirects=False,
        ) as response:
            await self._check(response)
            rate = pcm_rate(response.headers, self._target.sample_rate)
            body = body_of(response.headers.get("Content-Type", ""), rate)
            async for data in response.content.iter_any():
                if audio := body.feed(data):
                    self.arrivals.append(Arrival(time.monotonic() - self.due, audio))
            body.end()
            self.rate_assumed = body.rate_assumed
        if not self.arrivals:
            raise RequestFailed("no_audio", "the answer ended without any audio")

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        """Raises RequestFailed unless the answer is audio."""
        if response.status != HTTPStatus.OK:
            refused = response.status in REFUSALS
            self.refusals += refused
            message = message_in(await _beginning(response)) or response.reason or "no message"
            wait = _seconds(response.headers.get("Retry-After")) if refused else None
            raise RequestFailed(f"http_{response.status}", message, wait)
        if response.content_type == "application/json" or (
            response.content_type.startswith("text/") and response.content_type != "text/event-stream"
        ):
            message = message_in(await _beginning(response))
            raise RequestFailed("not_audio", f"{response.content_type}: {message}")

    def _without_key(self, failure: Failure) -> Failure:
        """Servers repeat the key that they refuse."""
        if not self._target.api_key:
            return failure
        return Failure(failure.kind, failure.message.replace(self._target.api_key, "***"))


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for data in response.content.iter_any():
        body += data
        if len(body) > MAX_ERROR_BYTES:
            break
    return body


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; a date is as good as none."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def _failure(error: BaseException, timeout: float) -> Failure:
    message = str(error) or type(error).__name__
    match error:
        case aiohttp.ServerTimeoutError():
            return Failure("connect", f"no connection: {message}")
        case asyncio.TimeoutError():
            return Failure("timeout", f"not at its end after {timeout:g} s")
        case aiohttp.ClientConnectorError():
            return Failure("connect", message)
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | OSError():
            return Failure("broken", message)
        case _:
            return Failure("protocol", message)
