"""The handlers of the protocol's calls, all of which take a stream of requests, with something around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

Answer = Callable[[AsyncIterator[bytes], grpc.aio.ServicerContext], Any]


def around(handler: Any, wrap: Callable[[Answer], Answer]) -> grpc.RpcMethodHandler:
    """`handler` with `wrap` of what answers its calls in the place of that."""
    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(wrap(handler.stream_stream))
    return grpc.stream_unary_rpc_method_handler(wrap(handler.stream_unary))
