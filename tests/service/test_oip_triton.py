"""The unmodified tritonclient against the real service: the tests of `triton_clients.py`, in a process of their own.

Its messages and those of the kserve package are registered under the same names: one process can load only one of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from launch.server import ROOT

CLIENTS = Path(__file__).parent / "triton_clients.py"


def test_tritonclient_is_served() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(CLIENTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 9
