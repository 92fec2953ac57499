"""The Open Inference Protocol over gRPC, with Triton's streaming inference and model configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.json_format import ParseDict

from api.arrival import MAX_BODY_BYTES, MESSAGE_SECONDS, arrived, draining_error, parsed
from api.errors import ApiError
from api.limits import count_request
from api.oip import metadata
from api.oip.errors import known, sentence
from api.oip.grpc_exchange import followed
from api.oip.grpc_handlers import Answer, around
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
from api.telemetry import ended

DRAIN_SECONDS = 86_400.0
"""Running calls finish, however long they take; whoever sent SIGTERM has the last word."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a rival
    ("grpc.max_receive_message_length", MAX_BODY_BYTES),
    ("grpc.max_send_message_length", 4 * MAX_WHOLE_SAMPLES + 2**20),
)
_STATUS = {
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_INFERENCES = ("ModelInfer", "ModelStreamInfer")
Request = TypeVar("Request")


class GrpcServer:
    """Serves `inference` at one address until `draining` is set."""

    def __init__(self, inference: Inference, draining: asyncio.Event) -> None:
        self._inference, self._draining = inference, draining
        self._server = grpc.aio.server(options=_OPTIONS)
        handlers = self._handlers()
        handlers |= {name: _counted(handlers[name]) for name in _INFERENCES}
        handlers = {name: followed(name, handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def start(self, address: str) -> None:
        """Raises RuntimeError when `address` cannot be used."""
        if not self._server.add_insecure_port(address):
            raise RuntimeError(f"cannot bind {address}")
        await self._server.start()

    async def drained(self) -> None:
        """Once `draining` is set: take no new calls, and return when the running ones have finished."""
        await self._draining.wait()
        await self._server.stop(DRAIN_SECONDS)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler]:
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
        handlers = {
            name: self._unary(partial(read_message, message(f"{name}Request")), call) for name, call in calls.items()
        }
        return {
            **handlers,
            "ModelInfer": self._unary(read_infer_call, self._model_infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._model_stream_infer),
        }

    def _unary(
        self, read: Callable[[bytes], Request], call: Callable[[Request], Awaitable[Any]]
    ) -> grpc.RpcMethodHandler:
        """Takes the message as a stream of one: a handler of a single message is not called before it is there."""

        async def handle(requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> bytes:
            try:
                return (await call(await self._message(read, requests))).SerializeToString()
            except Exception as error:
                return await _abort(context, error)

        return grpc.stream_unary_rpc_method_handler(handle)

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

    async def _model_infer(self, call: InferCall) -> Any:
        with recorded() as recording:
            asked = call.asked()
            model = await self._inference.model(call.model_name, call.model_version, tuple(asked.inputs))
            listed = () if call.raw else [spec.name for spec in model.outputs]
            tensors = await self._inference.infer(model, asked, listed, recording)
            return await asyncio.to_thread(infer_response, model, asked, tensors, call.raw)

    async def _model_stream_infer(self, requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
        """Each request of the stream is answered in full before the next one is begun."""
        source = aiter(requests)
        first = True
        try:
            while (data := await arrived(anext(source, None), None, self._draining)) is not None:
                if self._draining.is_set():
                    raise draining_error()
                await self._answer(await parsed(read_infer_call, data), context, counted=first)
                first = False
        except Exception as error:
            await _abort(context, error)

    async def _answer(self, call: InferCall, context: grpc.aio.ServicerContext, *, counted: bool) -> None:
        """Write one response per hop. A failure becomes a response too, and leaves the stream to the next request.

        `counted`: among the key's requests, already."""
        try:
            with recorded() as recording:
                if not counted:
                    count_request()
                asked = call.asked()
                model = await self._inference.model(call.model_name, call.model_version, tuple(asked.inputs))
                async with aclosing(self._inference.stream_infer(model, asked, recording)) as hops:
                    async for tensors in hops:
                        await context.write(hop_response(model, asked, tensors).SerializeToString())
        except Exception as error:
            await context.write(failed_response(call, sentence(known(error))).SerializeToString())
            return
        if asked.parameters.get(FINAL_RESPONSE):
            await context.write(final_response(model, asked).SerializeToString())


def _counted(handler: Any) -> grpc.RpcMethodHandler:
    """`handler`, whose requests are a stream, and what it refuses, in the metrics."""

    def wrap(answer: Answer) -> Answer:
        async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
            with received(ROUTE):
                return await answer(requests, context)

        return handle

    return around(handler, wrap)


async def _abort(context: grpc.aio.ServicerContext, error: Exception) -> Any:
    problem = known(error)
    ended(problem.code)
    await context.abort(_STATUS.get(problem.status, grpc.StatusCode.INVALID_ARGUMENT), sentence(problem))
