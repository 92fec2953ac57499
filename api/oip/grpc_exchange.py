"""Each gRPC call as one exchange: its id goes back in the metadata, its trace goes on, its line goes into the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from api import exchange
from api.oip.messages import SERVICE

QUIET_CALLS = frozenset(["ServerLive", "ServerReady"])
"""What a cluster's probes call."""


def followed(name: str, handler: Any) -> grpc.RpcMethodHandler:
    """`handler` of the call `name`, whose requests are a stream."""
    streams = handler.response_streaming
    answer = handler.stream_stream if streams else handler.stream_unary

    async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        with exchange.begun(metadata, "GRPC", session=streams, quiet=name in QUIET_CALLS) as call:
            call.route = f"{SERVICE}/{name}"
            await context.send_initial_metadata((("x-request-id", call.request_id),))
            try:
                return await answer(requests, context)
            except asyncio.CancelledError:
                call.ended("cancelled")
                raise
            finally:
                call.status = _status(context)

    return (grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler)(handle)


def _status(context: grpc.aio.ServicerContext) -> str:
    """Its name; nothing is set where all went well."""
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK.name
