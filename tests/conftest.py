"""What holds for every test process, and for the servers that tests start."""

from __future__ import annotations

import os

# Threads that spin while they wait take the core from the one they wait for; a machine that runs tests is seldom idle.
# OpenMP reads this once, when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
