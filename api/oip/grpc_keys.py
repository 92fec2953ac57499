"""API keys over gRPC: the same keys and limits as over HTTP, from the call's `authorization` metadata."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import grpc

from api.auth import KeyRing
from api.errors import ApiError
from api.oip.errors import sentence
from api.oip.grpc_server import GrpcServer
from api.oip.inference import Inference

# What a cluster's probes call; they bring no key.
OPEN_CALLS = frozenset(["ServerLive", "ServerReady"])


class KeyedGrpcServer(GrpcServer):
    """Takes calls only from who has one of `keys`, within its limits; None: from everybody."""

    def __init__(self, inference: Inference, draining: asyncio.Event, keys: KeyRing | None) -> None:
        self._keys = keys
        super().__init__(inference, draining)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        handlers = super()._handlers()
        if self._keys is None:
            return handlers
        return {name: h if name in OPEN_CALLS else _keyed(h, self._keys) for name, h in handlers.items()}


def _keyed(handler: Any, keys: KeyRing) -> grpc.RpcMethodHandler:
    """`handler`, whose requests are a stream, behind the check of the key."""
    streams = handler.response_streaming
    answer = handler.stream_stream if streams else handler.stream_unary

    async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        with ExitStack() as running:
            try:
                meter = keys.meter(dict(context.invocation_metadata() or ()).get("authorization"))
                running.enter_context(meter.request())
            except ApiError as problem:
                status = (
                    grpc.StatusCode.UNAUTHENTICATED if problem.status == 401 else grpc.StatusCode.RESOURCE_EXHAUSTED
                )
                await context.abort(status, sentence(problem))
            return await answer(requests, context)

    return (grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler)(handle)
