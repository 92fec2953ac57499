"""The API's description: `/openapi.json`, its page at `/docs`, and what answers at `/` and where nothing is."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.routing import Match, Route
from starlette.types import Scope

from api.errors import ApiError
from api.front import is_bentomls
from api.openapi import document

# Swagger UI sets styles on its elements, and draws icons that are in its style sheet.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "no-referrer"}
# Swagger UI's own files come from BentoML, which serves them in this folder.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>CosyServe API</title>
<link rel="stylesheet" href="static_content/swagger-ui.css">
<link rel="icon" href="static_content/favicon-light-32x32.png">
<div id="page"></div>
<script src="static_content/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
});
"""
_METHODS = frozenset(["GET", "POST", "PUT", "PATCH", "DELETE"])


def router(app: FastAPI) -> APIRouter:
    """The description of `app` as it is when it is first asked for."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def home() -> Response:
        """A browser is led to the playground; relative, so that a proxy may serve this under a prefix of its own."""
        return RedirectResponse("ui/")

    @routes.get("/openapi.json")
    @routes.get("/docs.json")  # where BentoML has it
    async def description() -> Response:
        return JSONResponse(document(app))

    @routes.get("/docs")
    async def page() -> Response:
        return HTMLResponse(_PAGE, headers=_HEADERS)

    @routes.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, media_type="text/javascript", headers=_HEADERS)

    return routes


class Unknown(Route):
    """What no other route takes, so that it gets this API's error and not BentoML's; to be the last one."""

    def __init__(self) -> None:
        async def unknown(request: Request) -> Response:
            if request.method not in _METHODS:
                raise ApiError(405, "method_not_allowed", f"{request.method} is not a method of {request.url.path}.")
            message = f"There is no {request.url.path} here, or not with this method."
            raise ApiError(404, "not_found", message)

        super().__init__("/{path:path}", unknown, methods=[*_METHODS, "HEAD", "OPTIONS"], include_in_schema=False)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # A path may have line breaks, which the pattern of a route does not match.
        if scope["type"] != "http" or is_bentomls(scope):
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": {}}
