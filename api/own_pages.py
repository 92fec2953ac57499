"""Who may use a server that asks for no key: the pages of the server itself, and no page that a browser has from
elsewhere. Any site that the user visits could ask for speech otherwise, or read and delete voices."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth import is_open, send_refusal
from api.errors import ApiError
from api.exposure import ALLOW_OPEN


class OwnPages:
    """ASGI middleware. `local`: the server is asked for by a name of this machine, which no other site can take."""

    def __init__(self, app: ASGIApp, respond: Callable[[ApiError, Scope], JSONResponse], *, local: bool) -> None:
        self._app, self._respond, self._local = app, respond, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not is_open(scope):
            try:
                self._check(Headers(scope=scope))
            except ApiError as problem:
                await send_refusal(self._respond(problem, scope), problem, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        """Raises ApiError origin_not_allowed."""
        host, origin = headers.get("host"), headers.get("origin")
        if self._local and host is not None and not is_this_machine(host):
            message = (
                f"Without API keys this server is localhost, not {host}: set API keys, or {ALLOW_OPEN}=1 where "
                "something else decides who reaches it."
            )
            raise ApiError(403, "origin_not_allowed", message)
        # A gateway that asks under a name of its own says which one the browser used.
        asked = {name.strip().lower() for name in (host, *headers.get("x-forwarded-host", "").split(",")) if name}
        if origin is not None and origin.partition("://")[2].lower() not in asked:
            message = f"Without API keys this server answers its own pages only, not those of {origin}."
            raise ApiError(403, "origin_not_allowed", message)


def is_this_machine(host: str) -> bool:
    """Whether the value of a Host header can mean no other machine than this one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower()
