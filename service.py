"""The bento: an entry service that speaks the public API, wired to PromptEncoder and SpeechEngine."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from concurrent.futures import Future
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import aiohttp
import bentoml
from bentoml.exceptions import BentoMLException

from api.app import create_app
from api.auth import KeyRing
from api.dictionaries import DictionaryStore
from api.exposure import check_exposure, host_and_port, listening_hosts, may_be_open
from api.front import Front
from api.live_session import DRAIN_SECONDS
from api.logs import configure
from api.oip.grpc_settings import grpc_address
from api.open_sessions import SESSIONS
from api.tracing import traceparent
from models.conditioning import Conditioning
from models.config import load_config
from models.errors import ModelError
from models.tokenizer import Tokenizer
from runners.engine_client import EngineClient
from runners.fatal import die
from runners.frames import Frame
from runners.model_folder import model_folder
from runners.prompt_encoder import PromptEncoder
from runners.request import ModelInfo, RequestError, SpeechRequest
from runners.speech_engine import SpeechEngine
from runners.tracing import flush
from runners.traffic import untimed
from runners.voice_store import FOLDER_VARIABLE, VoiceStore
from runners.watch import RunnerWatch
from text.frontend import TextFrontend

if TYPE_CHECKING:
    from api.oip.grpc_port import GrpcPort

logger = logging.getLogger("cosyserve.api")


class Runners:
    """The API's backend: the running service instance, looked up when a request comes."""

    @property
    def frontend(self) -> TextFrontend:
        return _instance().frontend

    async def is_ready(self) -> bool:
        return await _instance().__is_ready__()

    async def describe(self) -> ModelInfo:
        return await _instance().describe()

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        return await _instance().encode(samples, sample_rate)

    def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        return _client().stream(request)

    def dictate(self, request: SpeechRequest, texts: AsyncIterator[str]) -> AsyncGenerator[Frame, None]:
        return _client().stream(request, texts)


async def _answer(runner: RunnerWatch | None, call: Awaitable[Any]) -> Any:
    """Of a unary call to a runner: whatever its process or the way to it fails with is one error, to be tried again."""
    assert runner is not None, "requests come after start-up"
    try:
        return await runner.answer(call)
    except (BentoMLException, aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
        raise runner.unavailable() from error


def _open(voices: VoiceStore, dictionaries: DictionaryStore | None) -> None:
    try:
        voices.warm_up()
        if dictionaries is not None:
            dictionaries.warm_up()
    except (ModelError, RequestError) as error:
        die(error.message)
    except OSError as error:
        die(f"{FOLDER_VARIABLE}={voices.folder} cannot be used: {error.strerror}.")


def _cannot_listen(address: str) -> NoReturn:
    die(f"gRPC cannot listen on {address}: choose another port with GRPC_PORT=...")


def _client() -> EngineClient:
    client = _instance().engine_client
    assert client is not None, "requests come after start-up"
    return client


def _instance() -> CosyVoice:
    return bentoml.get_current_service()


def _logs() -> None:
    try:
        configure()
    except ValueError as error:
        die(str(error))


def _keys() -> KeyRing | None:
    try:
        return KeyRing.from_environment()
    except ValueError as error:
        die(str(error))


_logs()
untimed()
keys = _keys()
public_api = create_app(Runners(), keys, local=not may_be_open())


@bentoml.service(
    name="cosyserve",
    runner_probe={"enabled": False},  # `__is_ready__` asks the runners itself
    metrics={"enabled": False},  # `api.metrics` serves them
    logging={"access": {"enabled": False}},
)
@bentoml.asgi_app(public_api, path="/")
class CosyVoice:
    """CosyVoice text-to-speech behind OpenAI's API and the Open Inference Protocol."""

    encoder = bentoml.depends(PromptEncoder)
    engine = bentoml.depends(SpeechEngine)

    def __init__(self) -> None:
        try:
            config = load_config(model_folder())
            self.frontend = TextFrontend.for_model(config, Tokenizer.load(config.root, config.version))
            self._grpc_address = grpc_address()
            grpc_hosts = [host_and_port(self._grpc_address)[0]] if self._grpc_address else []
            check_exposure([*listening_hosts(), *grpc_hosts], keys)
        except ModelError as error:
            die(error.message)
        except ValueError as error:
            die(str(error))
        self.engine_client: EngineClient | None = None
        self._engine_watch: RunnerWatch | None = None
        self._encoder_watch: RunnerWatch | None = None
        self._info: ModelInfo | None = None
        self._draining: asyncio.Event = public_api.state.draining  # set from SIGTERM on
        self._grpc: GrpcPort | None = None
        self._grpc_serving: asyncio.Task | None = None
        self._drained: Future[None] | None = None  # held: nobody else does

    @bentoml.on_startup
    async def start(self) -> None:
        runners: tuple[Any, ...] = (SpeechEngine, PromptEncoder)  # the decorator made them bentoml.Service objects
        engine, encoder = (runner.url for runner in runners)
        if engine is None or encoder is None:
            die("run with `bentoml serve`, without --development: the runners need processes of their own")
        self._engine_watch = RunnerWatch("engine", engine)
        self._encoder_watch = RunnerWatch("prompt encoder", encoder)
        self.engine_client = EngineClient(engine, self._engine_watch)
        await asyncio.to_thread(self.frontend.warm_up)
        if (voices := public_api.state.speaker.voices) is not None:
            await asyncio.to_thread(_open, voices, public_api.state.speaker.dictionaries)
        if self._grpc_address is not None:
            self._start_grpc(self._grpc_address)
        self._unready_from_sigterm()

    def _start_grpc(self, address: str) -> None:
        from api.oip.grpc_keys import KeyedGrpcServer  # grpc is not imported where it is not used
        from api.oip.grpc_port import GrpcPort

        def server() -> KeyedGrpcServer:
            return KeyedGrpcServer(public_api.state.inference, self._draining, keys)

        async def serve(port: GrpcPort) -> None:
            try:
                await port.run()
            except RuntimeError:
                _cannot_listen(address)
            except Exception:  # the server would be unready for ever
                logger.exception("gRPC has failed")
                die("gRPC has failed, see the traceback above")

        try:
            self._grpc = GrpcPort(address, server, self._runners_ready, self._runner_gone, self._draining)
        except OSError:
            _cannot_listen(address)
        # Until SIGTERM: HTTP drains by itself, and only then are the shutdown hooks called.
        self._grpc_serving = asyncio.create_task(serve(self._grpc))

    def _unready_from_sigterm(self) -> None:
        """From the signal on, probes see the drain and new requests are refused; the server stops listening, and lets
        what runs finish, when its WebSocket sessions have ended: it would close them at once."""
        previous = signal.getsignal(signal.SIGTERM)
        loop = asyncio.get_running_loop()

        async def drain(number: int, frame: FrameType | None) -> None:
            self._draining.set()
            await SESSIONS.ended(DRAIN_SECONDS)
            if callable(previous):
                previous(number, frame)

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._drained = asyncio.run_coroutine_threadsafe(drain(number, frame), loop)

        signal.signal(signal.SIGTERM, on_signal)

    @bentoml.on_shutdown
    async def stop(self) -> None:
        if self._grpc_serving is not None:
            self._draining.set()
            await self._grpc_serving
        if self.engine_client is not None:
            await self.engine_client.close()
        for watch in self._watches():
            await watch.close()
        await asyncio.to_thread(flush)

    async def __is_ready__(self) -> bool:
        """Whether it answers at every one of its ports."""
        if self._draining.is_set() or (self._grpc is not None and not self._grpc.open):
            return False
        return await self._runners_ready() and not self._draining.is_set()

    async def _runners_ready(self) -> bool:
        return all(await asyncio.gather(*(watch.is_ready() for watch in self._watches())))

    async def _runner_gone(self) -> None:
        """Returns when one of them is."""
        waiting = [asyncio.ensure_future(watch.gone()) for watch in self._watches()]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    def _watches(self) -> list[RunnerWatch]:
        return [watch for watch in (self._engine_watch, self._encoder_watch) if watch is not None]

    async def describe(self) -> ModelInfo:
        """The loaded model; raises RequestError `loading`."""
        if self._info is None:
            values = await _answer(self._engine_watch, self.engine.describe())
            if not values:
                raise RequestError("loading", "The model is still loading. Try again shortly.", 503)
            self._info = ModelInfo.from_dict(values)
        return self._info

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        """A voice from float32 mono samples; raises RequestError."""
        item = {"samples": samples, "sample_rate": sample_rate, "traceparent": traceparent()}
        (result,) = await _answer(self._encoder_watch, self.encoder.to_async.encode([item]))
        if "error" in result:
            raise RequestError(**result["error"])
        return Conditioning.from_bytes(result["conditioning"])


_entry: Any = CosyVoice  # the decorator made it a bentoml.Service
_entry.add_asgi_middleware(Front, public=public_api)
