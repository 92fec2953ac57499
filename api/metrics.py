"""`GET /metrics`: what every process of the service counted, in Prometheus's text format.

BentoML's own endpoint is off on the entry service: it counts each path that anybody asks for as a series of its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Gauge, generate_latest, multiprocess

_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # set by BentoML before it starts the processes

RESIDENT = Gauge(
    "cosyserve_resident_memory_bytes",
    "Of all processes of the service, pages that they share counted in each.",
    multiprocess_mode="livemostrecent",
)


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
        RESIDENT.set(psutil.Process().memory_info().rss)
        return generate_latest(REGISTRY)
    RESIDENT.set(sum(map(_resident, _forget_the_dead(Path(folder)))))
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=folder)
    return generate_latest(registry)


def _forget_the_dead(folder: Path) -> set[int]:
    """The processes that live and count here. One that was killed leaves its gauges behind: streams that it had open
    would count for ever."""
    living = set()
    for path in folder.glob("*_*.db"):
        pid = int(path.stem.rsplit("_", 1)[-1])
        if _lives(pid):
            living.add(pid)
        elif path.name.startswith("gauge_live"):
            path.unlink(missing_ok=True)
    return living


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _resident(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.NoSuchProcess:  # since a moment
        return 0
