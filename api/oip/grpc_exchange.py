"""Each gRPC call as one exchange: its id goes back in the metadata, its trace goes on, its line goes into the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from api import exchange
from api.oip.grpc_handlers import STREAMING, Answer
from api.oip.messages import SERVICE

QUIET_CALLS = frozenset(["ServerLive", "ServerReady"])
"""What a cluster's probes call."""


def followed(name: str, answer: Answer) -> Answer:
    """`answer` of the call `name`."""

    async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        session, quiet = name in STREAMING, name in QUIET_CALLS
        with exchange.begun(metadata, "GRPC", session=session, quiet=quiet) as call:
            call.route = f"{SERVICE}/{name}"
            await context.send_initial_metadata((("x-request-id", call.request_id),))
            try:
                await answer(requests, context)
            except asyncio.CancelledError:
                call.ended("cancelled")
                raise
            finally:
                call.status = _status(context)

    return handle


def _status(context: grpc.aio.ServicerContext) -> str:
    """Its name; nothing is set where all went well."""
    code = context.code()
    return code.name if isinstance(code, grpc.StatusCode) else grpc.StatusCode.OK.name
