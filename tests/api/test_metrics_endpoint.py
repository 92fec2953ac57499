"""The scrape adds up what several processes counted, and forgets what the dead ones had open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from tests.api.oip_backend import FakeBackend

WORKER = """
import sys
from prometheus_client import Counter, Gauge
Counter("cosyserve_tried", "tries").inc(2)
Gauge("cosyserve_open", "open", multiprocess_mode="livesum").set(3)
Gauge("cosyserve_waiting", "waiting", multiprocess_mode="livemostrecent").set(7)
sys.stdout.write("counted\\n"); sys.stdout.flush()
sys.stdin.read()
"""


async def test_a_killed_process_keeps_its_counts_and_loses_its_gauges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    pipe = subprocess.PIPE
    workers = [subprocess.Popen([sys.executable, "-c", WORKER], stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline() == "counted\n"
        app = create_app(FakeBackend())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            both = (await client.get("/metrics")).text
            assert "cosyserve_tried_total 4.0" in both
            assert "cosyserve_open 6.0" in both
            assert "cosyserve_waiting 7.0" in both
            workers[0].kill()
            os.waitid(os.P_PID, workers[0].pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has asked for its status
            one = (await client.get("/metrics")).text
            assert "cosyserve_tried_total 4.0" in one
            assert "cosyserve_open 3.0" in one
            workers[1].kill()
            workers[1].wait()
            none = (await client.get("/metrics")).text
            assert "cosyserve_tried_total 4.0" in none
            assert "cosyserve_open" not in none
            assert "cosyserve_waiting" not in none
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
