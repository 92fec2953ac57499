"""A speech server that follows a script, and what the load generator makes of it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.load import main

RATE = 8000
PCM = f"audio/pcm;rate={RATE}"


@dataclass(frozen=True)
class Answer:
    """`pieces`: seconds to wait, and seconds of audio or bytes to send then; `breaks`: the connection, after them."""

    pieces: Sequence[tuple[float, float | bytes]] = ((0.0, 0.5),)
    content_type: str = PCM
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""  # instead of pieces
    breaks: bool = False


class Scripted:
    """A speech server whose n-th request gets the n-th answer, and around again. Records what it is asked, and when."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers
        self.url = ""
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.most_at_once = 0
        self._at_once = 0

    async def speech(self, request: web.Request) -> web.StreamResponse:
        at = time.monotonic()
        body = await request.json()
        answer = self._answers[len(self.bodies) % len(self._answers)]
        self.times.append(at)
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._give(request, answer)
        finally:
            self._at_once -= 1

    async def _give(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        headers = {"Content-Type": answer.content_type, **answer.headers}
        if answer.body:
            return web.Response(body=answer.body, status=answer.status, headers=headers)
        response = web.StreamResponse(status=answer.status, headers=headers)
        if "Content-Length" not in headers:
            response.enable_chunked_encoding()
        await response.prepare(request)
        for pause, piece in answer.pieces:
            await asyncio.sleep(pause)
            await response.write(piece if isinstance(piece, bytes) else bytes(int(2 * RATE * piece)))
        if answer.breaks:
            assert request.transport is not None
            request.transport.abort()
        await response.write_eof()
        return response


@contextmanager
def scripted(*answers: Answer) -> Iterator[Scripted]:
    server = Scripted(answers or [Answer()])
    app = web.Application()
    app.router.add_post("/v1/audio/speech", server.speech)
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    loop.run_until_complete(runner.setup())
    loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str
    levels: list[dict]

    def kinds(self) -> dict[str, int]:
        return {failure["kind"]: failure["count"] for level in self.levels for failure in level["failures"]}


def run_load(folder: Path, capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> Result:
    """Run the command; its JSON is `folder`/load.json."""
    path = folder / "load.json"
    status = 0
    try:
        main([url, "--json", str(path), *arguments])
    except SystemExit as stopped:
        assert isinstance(stopped.code, int), stopped.code
        status = stopped.code
    printed = capsys.readouterr()
    return Result(status, printed.out, printed.err, json.loads(path.read_text())["levels"])
