"""The WebSocket routes over a backend without runners, behind a real server, and a client that keeps their rules."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect

from api import dashscope, websocket
from api.live_session import Limits
from api.references import ReferenceVoices
from api.synthesis import Speaker
from runners.frames import Frame, FrameKind
from runners.request import SpeechRequest
from tests.api.oip_backend import RATE, FakeBackend

SECOND = np.full(RATE, 0.25, np.float32)


@dataclass
class Endless(FakeBackend):
    """Speaks `seconds` of a constant for each request, each second counted when it is made."""

    seconds: int = 10_000
    made: int = 0

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        self.running += 1
        try:
            for _ in range(self.seconds):
                self.made += 1
                yield Frame(FrameKind.AUDIO, SECOND.tobytes())
            yield Frame.of(FrameKind.SEGMENT, end=self.seconds * RATE)
            yield Frame.of(FrameKind.END, finish_reason="stop", text_tokens=1, speech_tokens=2)
        finally:
            self.running -= 1


@dataclass
class Sentence:
    start: dict[str, Any]
    audio: bytes = b""
    done: dict[str, Any] = field(default_factory=dict)


class Session:
    """A client of `/v1/audio/speech/stream`: what came, sentence by sentence; audio outside of one is a failure."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.sentences: list[Sentence] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of this kind; everything before it is kept."""
        while True:
            message = await asyncio.wait_for(self.socket.recv(), 20)
            if isinstance(message, bytes):
                assert self.sentences, "audio before any audio.start"
                assert not self.sentences[-1].done, "audio after audio.done"
                self.sentences[-1].audio += message
                continue
            event = json.loads(message)
            self.events.append(event)
            if event["type"] == "audio.start":
                assert not self.sentences or self.sentences[-1].done, "a sentence within a sentence"
                self.sentences.append(Sentence(event))
            elif event["type"] == "audio.done":
                self.sentences[-1].done = event
            if event["type"] == kind:
                return event

    async def audio_has_begun(self) -> None:
        """The first bytes of the sentence that is being spoken."""
        await self.until("audio.start")
        data = await self.socket.recv()
        assert isinstance(data, bytes)
        self.sentences[-1].audio += data

    async def until_closed(self) -> int | None:
        """The server's close code."""
        await asyncio.wait_for(self.socket.wait_closed(), 20)
        return self.socket.close_code


@dataclass
class LiveServer:
    app: FastAPI
    url: str

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncGenerator[Session, None]:
        async with connect(f"{self.url}/v1/audio/speech/stream", **options) as socket:
            session = Session(socket)
            await session.until("session.created")
            yield session


@asynccontextmanager
async def live_server(backend: FakeBackend, limits: Limits | None = None) -> AsyncGenerator[LiveServer, None]:
    app = FastAPI()
    app.state.draining = asyncio.Event()
    speaker = Speaker(backend, ReferenceVoices(backend))
    app.include_router(websocket.router(speaker, limits))
    app.include_router(dashscope.router(speaker, limits))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield LiveServer(app, f"ws://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        await serving


async def comes_true(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)
