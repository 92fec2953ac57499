"""One HTTP exchange that ends by its deadline, however slowly the bytes come."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


def exchange(method: str, url: str, seconds: float, **options: Any) -> httpx.Response:
    """The whole answer; httpx.ReadTimeout if it is not there after `seconds`, and httpx's other errors.

    httpx bounds each read, so a peer that sends one byte now and then would be listened to for ever.
    """

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(timeout=None) as client:
            return await client.request(method, url, **options)

    try:
        return asyncio.run(asyncio.wait_for(send(), seconds))
    except asyncio.TimeoutError:
        raise httpx.ReadTimeout(f"no whole answer after {seconds:g} s") from None
