"""A whole answer is gathered once."""

from __future__ import annotations

import tracemalloc

import numpy as np

from api.synthesis import speak
from api.telemetry import Recording
from runners.request import SpeechRequest
from tests.api.oip_backend import FakeBackend, all_samples

HOPS = 4000


async def test_a_whole_answer_is_not_held_twice() -> None:
    recording = Recording("oip")
    tracemalloc.start()
    try:
        samples, summary = await speak(FakeBackend(hops=HOPS), SpeechRequest(seed=5), recording)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * samples.nbytes
    finally:
        tracemalloc.stop()
        recording.finished("ok")
    np.testing.assert_array_equal(samples, all_samples(5, HOPS))
    assert summary["finish_reason"] == "stop"
