"""Gauges of the running service, and waiting for what is to come true."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx

from launch.server import Server


def gauge(server: Server, name: str) -> float:
    """The sum over all labels."""
    text = httpx.get(server.url + "/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


def until(condition: Callable[[], bool], timeout: float) -> float:
    """Seconds until `condition` holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, "it never came true"
        time.sleep(0.02)
    return time.monotonic() - began
