"""Times that the project promises, and how a probe spends them."""

from __future__ import annotations

from typing import Any

FULL_SIZE_LOAD_SECONDS = 300
EMBEDDED_LOAD_SECONDS = 60
SLOW_READING = 13  # characters of English per second, read slowly
LIVE_SECONDS = 540  # of speech that must fit into Knative's limit: about 7,000 characters


def load_seconds(overlay: str) -> int:
    return EMBEDDED_LOAD_SECONDS if overlay in ("overlays/cpu", "overlays/grpc") else FULL_SIZE_LOAD_SECONDS


def probe_seconds(probe: dict[str, Any]) -> int:
    """How long a probe may fail before it counts."""
    return probe["periodSeconds"] * probe["failureThreshold"]
