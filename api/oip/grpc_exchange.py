"""Each gRPC call as one exchange: its id goes back in the metadata, its trace goes on, its line goes into the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from api import exchange
from api.oip.grpc_handlers import Answer, around
from api.oip.messages import SERVICE

QUIET_CALLS = frozenset(["ServerLive", "ServerReady"])
"""What a cluster's probes call."""


def followed(name: str, handler: Any) -> grpc.RpcMethodHandler:
    """`handler` of the call `name`, whose requests are a stream."""

    def wrap(answer: Answer) -> Answer:
        async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
            session, quiet = handler.response_streaming, name in QUIET_CALLS
            with exchange.begun(metadata, "GRPC", session=session, quiet=quiet) as call:
                call.route = f"{SERVICE}/{name}"
                await context.send_initial_metadata((("x-request-id", call.request_id),))
                try:
                    return await answer(requests, context)
                except asyncio.CancelledError:
                    call.ended("cancelled")
                    raise
                finally:
                    call.status = _status(context)

        return handle

    return around(handler, wrap)


def _status(context: grpc.aio.ServicerContext) -> str:
    """Its name; nothing is set where all went well."""
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK.name
