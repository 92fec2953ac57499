"""What the public API answers and what BentoML does: few paths are BentoML's, and everything else is the API's."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from api.entrance import Entrance

BENTOML_PATHS = frozenset(["/livez", "/readyz", "/healthz", "/schema.json"])
BENTOML_FOLDER = "/static_content/"
"""Swagger UI's files."""


class Front:
    """ASGI middleware around BentoML's app, which would answer in its own shape what it finds no route for, and some
    paths (with a line break in them) that there is a route for."""

    def __init__(self, app: ASGIApp, public: ASGIApp) -> None:
        # The public app has an entrance of its own.
        self._app = Entrance(app, lambda problem, scope: problem.response())
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app if is_bentomls(scope) else self._public)(scope, receive, send)


def is_bentomls(scope: Scope) -> bool:
    """Whether BentoML answers: its probes, its description of itself, Swagger UI's files."""
    if scope["type"] not in ("http", "websocket"):  # the lifespan, which BentoML runs for its mounts too
        return True
    path = scope["path"]
    known = path in BENTOML_PATHS or path.startswith(BENTOML_FOLDER)
    return known and scope.get("method") in ("GET", "HEAD")
