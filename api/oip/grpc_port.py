"""The port of gRPC: open while the runners are ready, and closed otherwise.

Who is refused a connection asks another server: nginx does, and clients that wait for a server that is ready. A call
that a server has taken and answers with UNAVAILABLE is over: nginx sees an answer, and a quick one at that, so that by
`least_conn` it would send even more. Triton and KServe's own servers, too, listen when their models are loaded.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable

from api.exposure import host_and_port
from api.oip.grpc_server import GrpcServer

ASK_SECONDS = 0.1
"""Between two questions whether the runners are ready, while they are not."""


class GrpcPort:
    """Opens a server of `serving` at `address` whenever `ready` says so, until `gone` returns or `draining` is set."""

    def __init__(
        self,
        address: str,
        serving: Callable[[], GrpcServer],
        ready: Callable[[], Awaitable[bool]],
        gone: Callable[[], Awaitable[None]],
        draining: asyncio.Event,
    ) -> None:
        """Raises OSError when `address` cannot be used."""
        _check(address)
        self._address, self._serving, self._ready, self._gone = address, serving, ready, gone
        self._draining = draining
        self.open = False

    async def run(self) -> None:
        """Returns after the drain, when the running calls have finished. Raises RuntimeError when the address cannot be
        used."""
        stopping = []
        drained = asyncio.ensure_future(self._draining.wait())
        while await self._until_ready():
            server = self._serving()
            await server.start(self._address)
            self.open = True
            gone = asyncio.ensure_future(self._gone())
            await asyncio.wait({gone, drained}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            self.open = False
            stopping.append(asyncio.create_task(server.stop()))
        await asyncio.gather(*stopping)

    async def _until_ready(self) -> bool:
        """False: the server is to stop."""
        while not self._draining.is_set():
            if await self._ready():
                return not self._draining.is_set()
            await asyncio.sleep(ASK_SECONDS)
        return False


def _check(address: str) -> None:
    """Raises OSError when another server listens there, or no address of the host's name is this machine's."""
    host, port = host_and_port(address)
    problem: OSError | None = None
    free = False
    for family, kind, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
            free = True
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            problem = error
    if problem is not None and not free:
        raise problem
