"""One HTTP exchange that ends by its deadline, however slowly the name is resolved or the bytes come."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any

import httpx


def exchange(method: str, url: str, seconds: float, **options: Any) -> httpx.Response:
    """The whole answer; httpx.ReadTimeout if it is not there after `seconds`, and httpx's other errors.

    httpx bounds each read, and not the resolver: what is late is left to a thread that ends with the process.
    """
    answer: Future[httpx.Response] = Future()

    def send() -> None:
        try:
            answer.set_result(httpx.request(method, url, timeout=seconds, **options))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        return answer.result(seconds)
    except LateError:
        raise httpx.ReadTimeout(f"no whole answer after {seconds:g} s") from None
