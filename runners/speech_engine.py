"""SpeechEngine: the BentoML runner that owns the model and streams audio as frames over its own route.

Streams do not go through `bentoml.depends()`: its proxy cuts calls in flight when it renews its session, keeps the
engine computing after a client has left, and turns an exception into a clean end. The route below does neither.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator
from typing import Any

import bentoml
from starlette.types import Receive, Scope, Send

from models.errors import ModelError
from runners.fatal import die
from runners.frames import Frame, FrameKind, split_frames
from runners.request import ModelInfo, RequestError, SpeechRequest
from runners.tracing import Trace, Traces, flush
from runners.watch import WATCH_PATH, watched

logger = logging.getLogger("cosyserve.engine")

SYNTHESIZE_PATH = "/engine/"  # a mount answers below its slash; without it every request would be redirected
# Both runners work on the same GPU. With a whole one each, the second would be given a device that is not there.
GPU_SHARE = {"gpu": 0.5}
# Calls through depends() are unary, but even those are cut when the proxy renews its session after 100 of them.
KEEP_SESSION = {"max_requests": 10**9, "max_age": 1e9}
# A client that reads nothing for so long while audio waits for it has stalled: its request ends.
STALL_SECONDS = 120.0


async def synthesize(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI app: frames in, a SpeechRequest and perhaps its text, and frames out at the same time. A client that goes
    away cancels its request."""
    if scope["type"] != "http":
        return
    engine = bentoml.get_current_service()
    frames = split_frames(_until_gone(receive))
    asked = await anext(frames, None)
    if asked is None:
        return
    headers = [(b"content-type", b"application/octet-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send_frame(frame: Frame) -> None:
        await send({"type": "http.response.body", "body": frame.encode(), "more_body": not frame.last})

    try:
        job = await engine.submit(asked)
    except Exception as error:
        if not isinstance(error, RequestError):
            logger.exception("a request could not be read")
        await send_frame(Frame.error(error))
        return

    async def pump() -> None:
        async for frame in job.frames():
            await asyncio.wait_for(send_frame(engine.told(job, frame) if frame.last else frame), STALL_SECONDS)

    async def listen() -> None:
        async for frame in frames:
            engine.take(job, frame)

    tasks = {asyncio.ensure_future(pump()), asyncio.ensure_future(listen())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        engine.cancel(job)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                logger.warning("a stream was given up", exc_info=outcome)


async def _until_gone(receive: Receive) -> AsyncGenerator[bytes, None]:
    """The body as it comes, then nothing until the client goes away."""
    while (message := await receive())["type"] != "http.disconnect":
        yield message.get("body", b"")


@bentoml.service(
    name="speech_engine",
    resources=GPU_SHARE,
    workers=1,  # one scheduler, one copy of the weights; scale by replicas
    runner_connection=KEEP_SESSION,
    logging={"access": {"enabled": False}},
)
@bentoml.asgi_app(synthesize, path=SYNTHESIZE_PATH)
@bentoml.asgi_app(watched, path=WATCH_PATH)
class SpeechEngine:
    """Loads the model in the background so that probes are answered meanwhile; ready after a warm-up synthesis."""

    def __init__(self) -> None:
        self._info: ModelInfo | None = None
        self._scheduler: Any = None
        self._loading: asyncio.Task | None = None
        self._traces = Traces()

    @bentoml.on_startup
    async def start(self) -> None:
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            if not await self._open(await asyncio.to_thread(_load_model)):
                # Not within an except block, which would keep the first model in memory.
                logger.warning("the model's values do not fit its precision: it is loaded again, in float32")
                if not await self._open(await asyncio.to_thread(_load_model, "float32")):
                    die("the model's values are not finite")
        except ModelError as error:
            die(error.message)
        except Exception:
            logger.exception("the model could not be started")
            die("the model could not be started, see the traceback above")

    async def _open(self, model: Any) -> bool:
        """Serve the model; False, and nothing is served, where its precision does not hold its values."""
        from models.manifest import read_manifest
        from runners.modes import voices_of
        from runners.scheduler import Scheduler
        from runners.settings import engine_settings
        from runners.warm_up import warm_up

        self._scheduler = scheduler = Scheduler(model, engine_settings(model))
        scheduler.stages.listeners.append(self._traces.stepped)
        scheduler.start(on_death=lambda: die("the engine's loop stopped, see the traceback above"))
        try:
            await warm_up(scheduler)
        except FloatingPointError:
            await scheduler.close()
            self._scheduler = None
            return False
        config, folder = model.config, model.config.folder
        modes = ["preset", "zero_shot", "cross_lingual", "voice_conversion"]
        if folder.instructions:
            modes.append("instruct")
        if folder.bistream:
            modes.append("bistream")
        manifest = read_manifest(config.root)
        voices = voices_of(model)
        default = folder.default_voice or (voices[0].id if voices else None)
        self._info = ModelInfo(
            name=config.name,
            version=config.version,
            sample_rate=config.sample_rate,
            default_voice=default,
            voices=voices,
            modes=tuple(modes),
            languages=folder.languages,
            revision=manifest.revision if manifest is not None else None,
        )
        device = model.token2wav.flow.device
        logger.info("ready: %s, CosyVoice %d, %d voices, on %s", config.name, config.version, len(voices), device)
        return True

    @bentoml.on_shutdown
    async def stop(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        if self._scheduler is not None:
            await self._scheduler.close()
        await asyncio.to_thread(flush)

    async def __is_ready__(self) -> bool:
        return self._info is not None

    async def submit(self, asked: Frame) -> Any:
        """Admit the SpeechRequest in a REQUEST frame. Returns its Job; raises RequestError."""
        if self._info is None:
            raise RequestError("loading", "The model is still loading. Try again shortly.", 503)
        began = time.monotonic()
        request = SpeechRequest.from_bytes(asked.payload)
        trace = Trace.begin("engine", {"traceparent": request.traceparent}) if request.traceparent else None
        try:
            job = await self._scheduler.submit(request)
        except RequestError as error:
            if trace is not None:
                trace.end(failed=error.code)
            raise
        if trace is not None:
            trace.step("tokenise", began, time.monotonic())
            self._traces.follow(job, trace)
        return job

    def told(self, job: Any, last: Frame) -> Frame:
        """The last frame of a request, with what is known of it now that it has ended."""
        if last.kind is not FrameKind.END:
            self._traces.end(job, failed=last.json()["code"])
            return last
        end = {**last.json(), "queue_wait_s": job.begun_at - job.submitted_at}
        self._traces.end(job, **end)
        return Frame.of(FrameKind.END, **end)

    def take(self, job: Any, frame: Frame) -> None:
        """A frame that follows the request: its text, or the end of it."""
        if frame.kind is FrameKind.TEXT:
            self._scheduler.push_text(job, frame.payload.decode())
        elif frame.kind is FrameKind.TEXT_END:
            self._scheduler.end_text(job)

    def cancel(self, job: Any) -> None:
        self._scheduler.cancel(job)
        self._traces.end(job, outcome="cancelled")  # unless it has ended

    @bentoml.api
    async def describe(self) -> dict:
        """The loaded model as ModelInfo.to_dict(), or {} while it loads."""
        return self._info.to_dict() if self._info is not None else {}


def _load_model(dtype: str | None = None) -> Any:
    # Threads that spin while they wait take the core from the one they wait for: a decode step of 1 ms took 50 ms on a
    # busy machine. OpenMP reads this once, when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from runners.settings import load_model

    return load_model(dtype)
