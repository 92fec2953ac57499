"""Precision, memory and window as the environment asks for them, and the way back when a precision does not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import precision
from models.config import EMBEDDED, load_config
from models.cosyvoice import CosyVoice
from runners import memory, settings, speech_engine
from tests.golden import golden
from tests.runners.engine import engine, greedy, speak, tiny_model, zero_shot_request

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_precision_that_is_asked_for_is_taken(name: str) -> None:
    dtype = getattr(torch, name)
    assert settings._dtypes(name, load_config(EMBEDDED), CPU) == (dtype, dtype)


def test_a_precision_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="COSYSERVE_DTYPE='half' is not auto, float32 or bfloat16"):
        settings._dtypes("half", load_config(EMBEDDED), CPU)


def test_a_small_model_stays_in_float32_and_a_large_one_takes_what_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(EMBEDDED)
    assert settings._dtypes("auto", config, CPU) == (torch.float32, torch.float32)
    large = SimpleNamespace(llm={"llm_input_size": 896})
    expected = (precision.preferred_decode_dtype(896, CPU), precision.preferred_dtype(896, CPU))
    assert settings._dtypes("auto", large, CPU) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
def test_the_engine_speaks_in_bfloat16(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens may differ; the audio is as long, finite and loud."""
    import asyncio

    low = CosyVoice.load(golden(version).dir, lm_dtype=torch.bfloat16, flow_dtype=torch.bfloat16)

    async def both():
        results = []
        for model in (tiny_model(version), low):
            async with engine(version, greedy, model=model) as scheduler:
                results.append(await speak(scheduler, zero_shot_request(version, "Hello world.")))
        return results

    (exact, end), (rounded, rounded_end) = asyncio.run(both())
    assert end == rounded_end
    assert [len(block) for block in exact] == [len(block) for block in rounded]
    loud = sum(float(abs(block).mean()) for block in exact)
    assert sum(float(abs(block).mean()) for block in rounded) == pytest.approx(loud, rel=0.5)


def test_memory_is_shared_between_voices_and_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(2)
    monkeypatch.setenv("COSYSERVE_MEMORY_MB", "400")
    limits = settings.engine_settings(model)
    assert (model.token2wav.voices.max_bytes, limits.memory_bytes) == (100_000_000, 300_000_000)
    monkeypatch.delenv("COSYSERVE_MEMORY_MB")
    monkeypatch.setattr(memory, "budget_bytes", lambda device: 800_000_000)
    assert settings.engine_settings(model).memory_bytes == 600_000_000
    monkeypatch.setattr(memory, "budget_bytes", lambda device: None)
    assert settings.engine_settings(model).memory_bytes is None


@pytest.mark.parametrize(("value", "chunks"), [("", 20), ("3", 3), ("none", None)])
def test_the_window_is_in_seconds(value: str, chunks: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_WINDOW", value)
    monkeypatch.setattr(settings, "model_folder", lambda: golden(2).dir)
    model = settings.load_model()
    assert model.token2wav._recent == (None if chunks is None else 50 * chunks)


async def test_a_precision_that_does_not_hold_gives_way_to_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def load(dtype: str | None = None) -> CosyVoice:
        asked.append(dtype)
        model = CosyVoice.load(golden(2).dir)
        if dtype is None:
            model.token2wav.flow.input_embedding.weight.data.fill_(torch.nan)
        return model

    monkeypatch.setattr(speech_engine, "_load_model", load)
    runner: Any = speech_engine.SpeechEngine
    instance = runner.inner()
    await instance._load()
    assert asked == [None, "float32"]
    assert await instance.__is_ready__()
    await instance.stop()
