"""Warming: a short sentence to a revision until it speaks it, so that no listener pays the cold start."""

from __future__ import annotations

import time

import httpx

from errors import RolloutError
from exchange import exchange
from waiting import Patience, Progress

# What activator, queue-proxy and gateway answer while a pod starts; 404: the route is not programmed yet.
NOT_YET = (404, 429, 502, 503, 504)
REQUEST_SECONDS = 300.0


def warm(url: str, host: str | None, body: dict, patience: Patience, progress: Progress) -> None:
    """Returns when `url` has spoken `body` to its end; RolloutError if it refuses or stays silent.

    `host`: the Host header, where `url` is the gateway's address rather than the service's name.
    """
    deadline = time.monotonic() + patience.timeout
    headers = {"Host": host} if host else None
    while True:
        started = time.monotonic()
        seconds = max(min(deadline - started, REQUEST_SECONDS), 0.1)
        try:
            answer = exchange("POST", f"{url.rstrip('/')}/v1/audio/speech", seconds, json=body, headers=headers)
            state = f"answers {answer.status_code}"
            if answer.status_code == 200 and answer.content:
                seconds = time.monotonic() - started
                progress.say(f"warm: {url} spoke {len(answer.content):,} bytes in {seconds:.1f} s")
                return
            if answer.status_code not in NOT_YET or _own_error(answer) == 404:
                raise RolloutError(f"{url} {state}: {' '.join(answer.text.split())[:300] or 'without a body'}")
        except httpx.UnsupportedProtocol:
            raise RolloutError(f"{url} is no http or https URL") from None
        except httpx.HTTPError as error:
            state = f"cannot be reached or breaks off ({type(error).__name__}: {error})"
        except (httpx.InvalidURL, ValueError) as error:
            raise RolloutError(f"no request can be made of {url}, the host and the body: {error}") from None
        if time.monotonic() + patience.poll >= deadline:
            raise RolloutError(f"{url} is not warm after {patience.timeout:g} s; it {state}")
        progress.say(f"waiting for {url}: it {state}")
        time.sleep(patience.poll)


def _own_error(answer: httpx.Response) -> int | None:
    """The status if the answer is the service's own error object, not one of the layers before it."""
    try:
        return answer.status_code if "code" in answer.json()["error"] else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
