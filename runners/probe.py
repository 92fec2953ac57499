"""Whether a runner is ready, asked over its own socket: bounded in time and cancellable.

BentoML's own probe (through `depends()`) is neither: asked of a runner that has stopped, it ignores cancellation and
keeps the entry process from ending.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import aiohttp

READINESS_PATH = "/readyz"
PROBE_SECONDS = 2.0


def connect(url: str) -> tuple[aiohttp.BaseConnector, str]:
    """How a runner at `url` (`file:///path/to.sock` or `http://host:port`) is reached: a connector and a base URL.

    A connection serves one request: one that is kept may have been closed by the runner when the next request takes it.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return aiohttp.UnixConnector(parts.path, limit=0, force_close=True), "http://runner"
    return aiohttp.TCPConnector(limit=0, force_close=True), url.rstrip("/")


async def is_ready(url: str) -> bool:
    """True when the runner at `url` answers its readiness probe with 200 within PROBE_SECONDS."""
    connector, base = connect(url)
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(base + READINESS_PATH) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError):  # which is no OSError before Python 3.11
        return False
