"""What answers the protocol's calls: each takes a stream of messages, and writes one answer, or one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc

Answer = Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext], Awaitable[None]]
"""Also of a call of one message: gRPC would not call its handler before that is there, nor say when it was taken."""
STREAMING = frozenset(["ModelStreamInfer"])
"""The calls of many messages; the others have one, and its answer."""
