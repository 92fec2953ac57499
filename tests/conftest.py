"""What holds for every test process, and for the servers that tests start."""

from __future__ import annotations

import os
import signal

# Threads that spin while they wait take the core from the one they wait for; a machine that runs tests is seldom idle.
# OpenMP reads this once, when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A shell starts what runs in the background with Ctrl-C ignored, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
