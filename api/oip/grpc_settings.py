"""Where the gRPC server listens, from the environment."""

from __future__ import annotations

import os


def grpc_address() -> str | None:
    """`host:port` of GRPC_HOST and GRPC_PORT; None when the port is unset or 0. Raises ValueError with a sentence.

    The host is loopback by default, and every address inside a container, as for HTTP.
    """
    port = os.environ.get("GRPC_PORT") or "0"
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ValueError(f"GRPC_PORT={port} is not a port: give a number from 1 to 65535, or 0 for no gRPC.")
    if int(port) == 0:
        return None
    in_container = os.environ.get("BENTOML_CONTAINERIZED") == "true"
    host = os.environ.get("GRPC_HOST") or ("0.0.0.0" if in_container else "127.0.0.1")
    return f"[{host}]:{int(port)}" if ":" in host else f"{host}:{int(port)}"
