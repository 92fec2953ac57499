"""After SIGTERM no request that never finishes arriving keeps the service from its end: the real service."""

from __future__ import annotations

import os
import signal
import socket
import threading

import grpc

from api.oip.messages import SERVICE
from tests.service.oip_server import InferenceServer


def test_sigterm_is_not_held_up_by_what_does_not_arrive() -> None:
    with InferenceServer() as server:
        server.wait_ready(timeout=120)
        assert server.process is not None
        with (
            socket.create_connection((server.host, server.port)) as half,
            grpc.insecure_channel(server.grpc_address) as channel,
        ):
            half.sendall(b"POST /v2/models/narrator/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            silence = threading.Event()
            try:
                silent = channel.stream_unary(f"/{SERVICE}/ModelInfer").future(iter(silence.wait, True), timeout=60)
                channel.unary_unary(f"/{SERVICE}/ServerLive")(
                    b"", timeout=30
                )  # after it: the server has the silent one
                os.kill(server.process.pid, signal.SIGTERM)
                half.settimeout(20)
                answer = half.makefile("rb").read()
                error = silent.exception(timeout=20)
            finally:
                silence.set()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b'{"error":"draining: ' in answer
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert error.details().startswith("draining: ")
            assert server.process.wait(20) == 0
