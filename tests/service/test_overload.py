"""More than the service can do: who is let in is served, the rest is told at once when to come again."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from launch.server import Server
from tests.service.live_gauges import gauge, until

AT_ONCE = 40
SHORT = {"input": "Good morning.", "response_format": "pcm"}
LONG = {**SHORT, "input": "The little boat went slowly down the river in the morning. " * 40}


@dataclass(frozen=True)
class Answer:
    """Seconds: until the status, and, of 200, until the first audio."""

    status: int
    headers: httpx.Headers
    body: bytes
    answered: float
    heard: float


async def _ask(http: httpx.AsyncClient) -> Answer:
    began = time.monotonic()
    async with http.stream("POST", "/v1/audio/speech", json=SHORT) as response:
        answered, heard, body = time.monotonic() - began, 0.0, b""
        async for data in response.aiter_raw():
            heard = heard or time.monotonic() - began
            body += data
    return Answer(response.status_code, response.headers, body, answered, heard)


async def _ask_at_once(server: Server, count: int) -> list[Answer]:
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
        return list(await asyncio.gather(*(_ask(http) for _ in range(count))))


def _heard(server: Server) -> Answer:
    """As a client hears it that comes again when it is told to."""
    for _ in range(10):
        (answer,) = asyncio.run(_ask_at_once(server, 1))
        if answer.status != 429:
            break
        time.sleep(int(answer.headers["retry-after"]))
    assert answer.status == 200
    return answer


@pytest.fixture
def idle(server: Server) -> Server:
    until(lambda: gauge(server, "cosyserve_engine_requests") == 0, 60)
    return server


def test_a_burst_is_served_as_far_as_it_can_begin_in_time(idle: Server) -> None:
    (alone,) = asyncio.run(_ask_at_once(idle, 1))
    answers = asyncio.run(_ask_at_once(idle, AT_ONCE))
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert served
    assert refused
    assert all(len(answer.body) > 24_000 for answer in served)
    for answer in refused:
        problem = json.loads(answer.body)["error"]
        assert (answer.status, problem["code"], problem["type"]) == (429, "overloaded", "rate_limit_error")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    slowest = max(answer.heard for answer in served)
    assert sorted(answer.answered for answer in refused)[len(refused) // 2] < slowest
    until(lambda: gauge(idle, "cosyserve_engine_requests") == 0, 30)
    (again,) = asyncio.run(_ask_at_once(idle, 1))
    assert again.status == 200
    assert again.heard < max(5 * alone.heard, 2.0)


def test_readers_that_stall_hold_nobody_up(idle: Server) -> None:
    body = json.dumps(LONG).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stalled:
        for _ in range(2):
            client = stalled.enter_context(socket.create_connection((idle.host, idle.port)))
            client.sendall(head.encode() + body)
            assert client.recv(12) == b"HTTP/1.1 200"  # with its first audio: the next has nobody before it
        until(lambda: gauge(idle, "cosyserve_engine_requests") == 2, 30)
        until(lambda: gauge(idle, "cosyserve_queue_depth") == 0, 30)
        answer = _heard(idle)
        assert len(answer.body) > 24_000
    assert until(lambda: gauge(idle, "cosyserve_engine_requests") == 0, 30) < 10
