"""Who may call over gRPC: the same keys, tokens, scopes and limits as over HTTP, from the `authorization` metadata."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

import grpc

from api.auth import Caller, KeyRing
from api.errors import ApiError
from api.exchange import current
from api.oip.errors import sentence
from api.oip.grpc_handlers import STREAMING, Answer
from api.oip.grpc_server import GrpcServer
from api.oip.inference import Inference
from api.revocation import Watch
from api.scopes import check_scope, of_call
from api.telemetry import ended

# What a cluster's probes call; they bring no key.
OPEN_CALLS = frozenset(["ServerLive", "ServerReady"])
_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class KeyedGrpcServer(GrpcServer):
    """Takes calls only from who `keys` let in, for what, within which limits; None: from everybody."""

    def __init__(self, inference: Inference, draining: asyncio.Event, keys: KeyRing | None) -> None:
        self._keys = keys
        super().__init__(inference, draining)

    def _answers(self) -> dict[str, Answer]:
        answers = super()._answers()
        if self._keys is None:
            return answers
        return {name: a if name in OPEN_CALLS else _keyed(name, a, self._keys) for name, a in answers.items()}


def _keyed(name: str, answer: Answer, keys: KeyRing) -> Answer:
    """`answer` of the call `name`, behind the check of the key."""

    async def handle(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        authorization = dict(context.invocation_metadata() or ()).get("authorization")

        async def let_in() -> Caller:
            caller = await keys.caller(authorization)
            check_scope(caller.scopes, of_call(name))
            if (exchange := current()) is not None:
                exchange.caller = caller.name
            return caller

        with ExitStack() as running:
            try:
                caller = await let_in()
                running.enter_context(caller.meter.request())
            except ApiError as problem:
                await _refuse(context, problem)
            if name not in STREAMING:
                await answer(requests, context)
                return
            async with Watch.of(let_in) as watch:
                await answer(_while_let_in(requests, watch), context)
                if watch.problem is not None:
                    await _refuse(context, watch.problem)

    return handle


async def _while_let_in(requests: AsyncIterator[bytes], watch: Watch) -> AsyncIterator[bytes]:
    """No further request is taken of who is not let in any more; the one that is being answered is answered."""
    source = aiter(requests)
    while (data := await watch.meanwhile(anext(source, None), None)) is not None:
        yield data


async def _refuse(context: grpc.aio.ServicerContext, problem: ApiError) -> None:
    ended(problem.code)
    await context.abort(_STATUS[problem.status], sentence(problem))
