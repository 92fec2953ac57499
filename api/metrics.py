"""`GET /metrics`: what every process of the service counted, in Prometheus's text format.

BentoML's own endpoint is off on the entry service: it counts each path that anybody asks for as a series of its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest, multiprocess

_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # set by BentoML before it starts the processes


def router() -> APIRouter:
    routes = APIRouter()

    @routes.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        text = await asyncio.to_thread(_latest)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def _latest() -> bytes:
    folder = os.environ.get(_DIRECTORY)
    if not folder:
        return generate_latest(REGISTRY)
    _forget_the_dead(Path(folder))
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=folder)
    return generate_latest(registry)


def _forget_the_dead(folder: Path) -> None:
    """A process that was killed leaves its gauges behind: streams that it had open would count for ever."""
    for path in folder.glob("gauge_live*_*.db"):
        pid = path.stem.rsplit("_", 1)[-1]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            path.unlink(missing_ok=True)
