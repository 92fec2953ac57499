"""The Open Inference Protocol over gRPC, with Triton's streaming inference and model configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import ParseDict

from api.arrival import GOODBYE_SECONDS, MAX_BODY_BYTES, MESSAGE_SECONDS, arrived, draining_error, parsed
from api.departure import StalledError
from api.errors import ApiError
from api.limits import count_request
from api.oip import metadata
from api.oip.errors import known, sentence
from api.oip.grpc_answers import WholeAnswers, abort, write
from api.oip.grpc_exchange import followed
from api.oip.grpc_handlers import Answer
from api.oip.grpc_messages import (
    InferCall,
    failed_response,
    final_response,
    hop_response,
    infer_response,
    read_infer_call,
)
from api.oip.inference import ROUTE, Inference, recorded
from api.oip.messages import SERVICE, message
from api.oip.models import VERSION
from api.oip.request import FINAL_RESPONSE
from api.oip.rest import check_load, unload_refused
from api.oip.wire import read_message
from api.received import received
from api.synthesis import MAX_WHOLE_SAMPLES

DRAIN_SECONDS = 86_400.0
"""Running calls finish, however long they take; whoever sent SIGTERM has the last word."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a rival
    ("grpc.max_receive_message_length", MAX_BODY_BYTES),
    ("grpc.max_send_message_length", 4 * MAX_WHOLE_SAMPLES + 2**20),
)
_INFERENCES = ("ModelInfer", "ModelStreamInfer")
Request = TypeVar("Request")


class GrpcServer:
    """Serves `inference` at one address, from `start` to `stop`. Once `draining` is set, what has not arrived is waited
    for no longer."""

    def __init__(self, inference: Inference, draining: asyncio.Event) -> None:
        self._inference, self._draining = inference, draining
        self._whole = WholeAnswers()
        self._running = 0  # calls
        self._idle = asyncio.Event()
        self._server = grpc.aio.server(options=_OPTIONS)
        answers = self._answers()
        answers |= {name: _counted(answers[name]) for name in _INFERENCES}
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(self._held(followed(name, answer)))
            for name, answer in answers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self, address: str) -> None:
        """Raises RuntimeError when `address` cannot be used."""
        if not self._server.add_insecure_port(address):
            raise RuntimeError(f"cannot bind {address}")
        await self._server.start()

    async def stop(self) -> None:
        """Listen no longer, and return when the running calls have finished; a client that has been given up, and is
        still there, is not waited for."""
        stopping = asyncio.create_task(self._server.stop(DRAIN_SECONDS))
        await asyncio.wait({stopping}, timeout=GOODBYE_SECONDS)  # what has arrived begins in that time
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await self._server.stop(GOODBYE_SECONDS)
        await stopping

    def _held(self, answer: Answer) -> Answer:
        """`answer`, which `stop` waits for."""

        async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
            self._running += 1
            try:
                await answer(requests, context)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

        return handle

    def _answers(self) -> dict[str, Answer]:
        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        answers = {
            name: self._unary(partial(read_message, message(f"{name}Request")), call) for name, call in calls.items()
        }
        return {
            **answers,
            "ModelInfer": self._model_infer,
            "ModelStreamInfer": self._model_stream_infer,
        }

    def _unary(self, read: Callable[[bytes], Request], call: Callable[[Request], Awaitable[Any]]) -> Answer:
        async def handle(requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
            try:
                answer = await call(await self._message(read, requests))
                await self._whole.write(context, answer.SerializeToString())
            except Exception as error:
                await abort(context, error)

        return handle

    async def _message(self, read: Callable[[bytes], Request], requests: AsyncIterable[bytes]) -> Request:
        data = await arrived(anext(aiter(requests), None), MESSAGE_SECONDS, self._draining)
        if data is None:
            raise ApiError(400, "invalid_message", "The call ended without a message.")
        return await parsed(read, data)

    async def _server_live(self, request: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def _server_ready(self, request: Any) -> Any:
        return message("ServerReadyResponse")(ready=await self._inference.backend.is_ready())

    async def _server_metadata(self, request: Any) -> Any:
        return message("ServerMetadataResponse")(**metadata.server())

    async def _model_ready(self, request: Any) -> Any:
        return message("ModelReadyResponse")(ready=await self._inference.is_ready(request.name, request.version))

    async def _model_metadata(self, request: Any) -> Any:
        model = await self._inference.model(request.name, request.version)
        return message("ModelMetadataResponse")(**metadata.model(model))

    async def _model_config(self, request: Any) -> Any:
        model = await self._inference.model(request.name, request.version)
        return ParseDict({"config": metadata.config(model)}, message("ModelConfigResponse")())

    async def _model_statistics(self, request: Any) -> Any:
        """How many inferences each model has answered; their times are in the metrics."""
        models = [await self._inference.model(request.name, request.version)] if request.name else ()
        response = message("ModelStatisticsResponse")()
        for model in models or await self._inference.models():
            count = self._inference.answered[model.name]
            response.model_stats.add(name=model.name, version=VERSION, inference_count=count)
        return response

    async def _load(self, request: Any) -> Any:
        name = request.model_name or request.repository_name
        await check_load(self._inference, name, bool(request.parameters))
        return message("RepositoryModelLoadResponse")(model_name=name, isLoaded=True)

    async def _unload(self, request: Any) -> Any:
        name = request.model_name or request.repository_name
        await self._inference.model(name)
        raise unload_refused(name)

    async def _model_infer(self, requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
        try:
            call = await self._message(read_infer_call, requests)
            with recorded() as recording:
                asked = call.asked()
                model = await self._inference.model(call.model_name, call.model_version, tuple(asked.inputs))
                listed = () if call.raw else [spec.name for spec in model.outputs]
                tensors = await self._inference.infer(model, asked, listed, recording)
                answer = await asyncio.to_thread(infer_response, model, asked, tensors, call.raw)
                await self._whole.write(context, answer.SerializeToString())
        except Exception as error:
            await abort(context, error)

    async def _model_stream_infer(self, requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
        """Each request of the stream is answered in full before the next one is begun."""
        source = aiter(requests)
        first = True
        try:
            while (data := await arrived(anext(source, None), None, self._draining)) is not None:
                await self._answer(data, context, counted=first)
                first = False
        except Exception as error:
            await abort(context, error)

    async def _answer(self, data: bytes, context: grpc.aio.ServicerContext, *, counted: bool) -> None:
        """Write one response per hop. A failure becomes a response too, and leaves the stream to the next request, but
        for that of what cannot be read, and of a client that takes nothing.

        `counted`: among the key's requests, already. Raises ApiError."""
        call: InferCall | None = None
        try:
            with recorded() as recording:
                if self._draining.is_set():
                    raise draining_error()
                call = await parsed(read_infer_call, data)
                if not counted:
                    count_request()
                asked = call.asked()
                model = await self._inference.model(call.model_name, call.model_version, tuple(asked.inputs))
                async with aclosing(self._inference.stream_infer(model, asked, recording)) as hops:
                    async for tensors in hops:
                        await write(context, hop_response(model, asked, tensors).SerializeToString())
        except StalledError:
            raise
        except Exception as error:
            if call is None:
                raise
            await write(context, failed_response(call, sentence(known(error))).SerializeToString())
            return
        if asked.parameters.get(FINAL_RESPONSE):
            await write(context, final_response(model, asked).SerializeToString())


def _counted(answer: Answer) -> Answer:
    """`answer`, and what it refuses, in the metrics."""

    async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        with received(ROUTE):
            await answer(requests, context)

    return handle
