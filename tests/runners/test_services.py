"""What the runners declare to BentoML, and what the HTTP process leaves alone."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from _bentoml_impl.server.allocator import NVIDIA_GPU, ResourceAllocator
from bentoml._internal.server.base_app import BaseAppFactory

from launch.server import ROOT
from runners.traffic import Untimed
from service import CosyVoice

SERVICE: Any = CosyVoice  # the decorator made it a bentoml.Service


@pytest.mark.parametrize("gpus", [1, 2])
def test_both_runners_are_given_the_first_gpu(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not there would leave a runner on the CPU without a word."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("BENTOML_DISABLE_GPU_ALLOCATION", raising=False)
    SERVICE.inject_config()
    with patch("_bentoml_impl.server.allocator.system_resources", lambda: {NVIDIA_GPU: list(range(gpus)), "cpu": 2}):
        allocator = ResourceAllocator()
        for dependency in SERVICE.dependencies.values():
            assert allocator.get_worker_env(dependency.on) == (1, {"CUDA_VISIBLE_DEVICES": "0"})


def test_the_http_process_does_not_load_torch() -> None:
    code = "import sys, service; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_no_timer_outlives_its_request() -> None:
    served: Any = SimpleNamespace(timeout=60, max_concurrency=None)
    middlewares: Any = BaseAppFactory.middlewares
    assert [middleware.cls for middleware in middlewares.fget(served)] == [Untimed]
