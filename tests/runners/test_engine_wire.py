"""The engine's own route over a real socket: a request's text goes in while its audio comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import bentoml
import pytest
import uvicorn

from runners import speech_engine
from runners.engine_client import EngineClient
from runners.frames import FrameKind
from runners.request import RequestError
from runners.scheduler import Scheduler
from runners.speech_engine import SYNTHESIZE_PATH, synthesize
from runners.watch import WATCH_PATH, RunnerWatch, watched
from tests.runners.engine import engine, until
from tests.runners.test_bistream_engine import WORDS, alone, incremental


@asynccontextmanager
async def served(scheduler: Scheduler, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[EngineClient]:
    service = speech_engine.SpeechEngine.inner()  # type: ignore[attr-defined]
    service._info, service._scheduler = object(), scheduler
    monkeypatch.setattr(bentoml, "get_current_service", lambda: service)

    async def app(scope, receive, send) -> None:
        apps = {SYNTHESIZE_PATH: synthesize, WATCH_PATH: watched}
        await apps[scope["path"]](scope, receive, send)

    path = folder / "engine.sock"
    server = uvicorn.Server(uvicorn.Config(app, uds=str(path), log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    watch = RunnerWatch("engine", f"file://{path}")
    await until(lambda: not watch._gone.is_set())  # it has connected
    client = EngineClient(f"file://{path}", watch)
    try:
        yield client
    finally:
        await client.close()
        await watch.close()
        server.should_exit = True
        await serving


async def test_text_goes_in_while_audio_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = incremental(3, seed=5)
    heard = asyncio.Event()

    async def texts() -> AsyncGenerator[str, None]:
        for word in WORDS:
            yield word
        await asyncio.wait_for(heard.wait(), 60)  # audio of the first words, before there are more
        yield " The end."

    async with engine(3) as scheduler, served(scheduler, tmp_path, monkeypatch) as client:
        kinds = []
        async for frame in client.stream(request, texts()):
            kinds.append(frame.kind)
            heard.set()
        assert frame.json()["speech_tokens"] == len(alone(3, request, [*WORDS, " The end."]))
    assert kinds[0] is FrameKind.AUDIO
    assert kinds[-1] is FrameKind.END


async def test_who_leaves_or_fails_while_writing_frees_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = 0

    async def endless() -> AsyncGenerator[str, None]:
        nonlocal closed
        try:
            for word in WORDS:
                yield word
            await asyncio.Event().wait()
        finally:
            closed += 1

    async def too_much() -> AsyncGenerator[str, None]:
        yield " a" * 121
        async for word in endless():
            yield word

    async with engine(3) as scheduler, served(scheduler, tmp_path, monkeypatch) as client:
        async with aclosing(client.stream(incremental(3), endless())) as frames:
            await anext(frames)
        await until(lambda: not scheduler.jobs and closed == 1, 10)
        with pytest.raises(RequestError) as refused:
            await anext(client.stream(incremental(3), too_much()))
        assert refused.value.code == "input_too_long"
        await until(lambda: not scheduler.jobs and closed == 2, 10)
