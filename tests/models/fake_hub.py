"""A hub on loopback: it speaks as much of Hugging Face's and of ModelScope's HTTP APIs as their clients ask of it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPO = "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"
COMMIT = "c0ffee" * 6 + "c0de"
LARGE = 100_000  # bytes; from here on a file is in LFS, as on Hugging Face


@dataclass
class FakeHub:
    """The repository REPO, its files, and what shall go wrong."""

    files: dict[str, bytes]
    url: str = ""
    cut_once: dict[str, int] = field(default_factory=dict)  # the connection breaks after so many bytes, once
    stall_at: dict[str, int] = field(default_factory=dict)  # it stays silent after so many bytes, for ever
    wrong: set[str] = field(default_factory=set)  # files that arrive with another content than listed
    gated: bool = False
    down: bool = False  # every request is answered 503
    silent: bool = False  # no listing is answered
    commit: object = COMMIT  # as Hugging Face's listing names it
    edit: Callable[[Any], Any] = lambda listing: listing  # what a listing is turned into
    limited: dict[str, str] = field(default_factory=dict)  # headers with which every file is answered 429
    served: list[tuple[str, int, int]] = field(default_factory=list)  # path, first byte asked for, bytes sent
    stalled: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def sent(self, name: str) -> list[tuple[int, int]]:
        """(first byte, number of bytes) of every answer that carried the file."""
        return [(first, count) for path, first, count in self.served if path == name]

    def asked(self) -> set[str]:
        return {path for path, _, _ in self.served}


def contents_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests look at `served`."""

    def do_GET(self) -> None:
        path, query = unquote(urlsplit(self.path).path), parse_qs(urlsplit(self.path).query)
        if self.hub.down:
            return self._json(503, {"error": "down for maintenance"})
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            return self._hugging_face_listing(found[1], found[2] or "main")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._hugging_face_file(found[3])
        if path.startswith("/cdn/"):
            return self._file(path.removeprefix("/cdn/"))
        if path == f"/api/v1/models/{REPO}/repo/files":
            return self._model_scope_listing(query["Revision"][0])
        if path == f"/api/v1/models/{REPO}/repo":
            return self._file(query["FilePath"][0])
        return self._json(404, {"Code": 10010205001, "Message": "not found", "Success": False})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _hugging_face_listing(self, repo: str, revision: str) -> None:
        if repo != REPO:
            return self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", COMMIT):
            return self._json(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        siblings = [_sibling(name, content) for name, content in self.hub.files.items()]
        return self._listing({"id": REPO, "sha": self.hub.commit, "siblings": siblings})

    def _hugging_face_file(self, name: str) -> None:
        if self.hub.gated:
            return self._json(403, {"error": "Access is restricted"}, {"X-Error-Code": "GatedRepo"})
        if self.hub.limited:
            return self._json(429, {"error": "Too many requests"}, self.hub.limited)
        if len(self.hub.files[name]) < LARGE:
            return self._file(name)
        self.send_response(302)  # large files lie on another server
        self.send_header("Location", f"{self.hub.url}/cdn/{name}")
        self.send_header("Content-Length", "0")
        return self.end_headers()

    def _model_scope_listing(self, revision: str) -> None:
        if self.hub.gated:
            return self._json(403, {"Code": 10010205002, "Message": "no permission", "Success": False})
        if revision != "master":
            return self._json(404, {"Code": 10010205001, "Message": "no such revision", "Success": False})
        entries = [
            {
                "Path": name,
                "Name": name.rpartition("/")[2],
                "Type": "blob",
                "Size": len(content),
                "Sha256": _sha(content),
            }
            for name, content in self.hub.files.items()
        ]
        return self._listing({"Code": 200, "Data": {"Files": entries}, "Success": True})

    def _listing(self, body: object) -> None:
        if self.hub.silent:
            self.hub.released.wait(60)
            self.close_connection = True
            return None
        return self._json(200, self.hub.edit(body))

    def _file(self, name: str) -> None:
        hub, content = self.hub, self.hub.files[name]
        if name in hub.wrong:
            content = bytes([content[0] ^ 1]) + content[1:]
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(found[1]) if found else 0
        part = content[first:]
        self.send_response(206 if found else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        if found:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        end = min(
            len(part), *(limit[name] - first for limit in (hub.cut_once, hub.stall_at) if name in limit), len(part)
        )
        hub.served.append((name, first, end))
        self.wfile.write(part[:end])
        self.wfile.flush()
        if name in hub.stall_at:
            hub.stalled.set()
            hub.released.wait(60)
        if end < len(part):
            hub.cut_once.pop(name, None)
            self.close_connection = True

    def _json(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for key, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _sibling(name: str, content: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _git_sha1(content)}
    if len(content) >= LARGE:
        pointer = b"version https://git-lfs.github.com/spec/v1\n"
        entry["blobId"] = _git_sha1(pointer)
        entry["lfs"] = {"sha256": _sha(content), "size": len(content), "pointerSize": len(pointer)}
    return entry


def _git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
