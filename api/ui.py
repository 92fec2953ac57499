"""`GET /ui`: the playground, one page and its modules, read once from a fixed list of files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from api.errors import ApiError

_FOLDER = Path(__file__).resolve().parent.parent / "web"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGE = "index.html"
_FILES = (
    _PAGE,
    "style.css",
    "icon.svg",
    "app.js",
    "code.js",
    "download.js",
    "dom.js",
    "notice.js",
    "player.js",
    "recorder.js",
    "reference.js",
    "segments.js",
    "server.js",
    "speech.js",
    "stage.js",
    "voices.js",
    "wav.js",
    "waveform.js",
    "wish.js",
)
# The page needs nothing but its own files and its own server; `blob:` is what the visitor recorded, played back.
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "media-src": "'self' blob:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{directive} {sources}" for directive, sources in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept by the browser, and asked for by its hash: modules of two releases never mix
}


@dataclass(frozen=True)
class Asset:
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


def router() -> APIRouter:
    """The routes of the page. Its files are read here, once: a path that a client sends never reaches the disk."""
    routes = APIRouter(include_in_schema=False)
    assets = {name: _read(name) for name in _FILES}

    @routes.api_route("/ui", methods=["GET", "HEAD"])
    async def page_without_slash() -> Response:
        # Relative: behind a proxy that serves this under a prefix of its own it leads to the same place.
        return RedirectResponse("ui/", 307, headers=_HEADERS)

    @routes.api_route("/ui/{name:path}", methods=["GET", "HEAD"])
    async def asset(name: str, request: Request) -> Response:
        found = assets.get(name or _PAGE)
        if found is None:
            raise ApiError(404, "not_found", "The playground has no such file.")
        headers = {**_HEADERS, "ETag": found.etag}
        if found.etag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    return routes


def _read(name: str) -> Asset:
    content = (_FOLDER / name).read_bytes()
    return Asset(content, _TYPES[Path(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
