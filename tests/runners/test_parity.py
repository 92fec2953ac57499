"""Every mode through the real scheduler gives the waveforms of the genuine classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runners.request import SpeechRequest
from runners.sequence import Utterance
from tests.golden import golden
from tests.runners.engine import engine, greedy, speak, zero_shot_request, zero_shot_voice

# Rounding of 1e-6 in the mel moves the pitch by as much, and the phase of the harmonics adds that up over the whole
# utterance: 1e-6 of noise on a golden mel gives the same differences. Mel and vocoder alone are compared within 1e-5.
PEAK_TOLERANCE = 1e-3
RMS_TOLERANCE = 5e-5  # of a signal of 1e-2
TEXT = "Hello world, read this."
INSTRUCTIONS = {2: "请用四川话说这句话。", 3: "请用广东话表达。"}
CROSS_LINGUAL = {2: "[laughter]Hello <strong>world</strong>.", 3: "[breath]Hello [j][ǐ] world."}


def _request(version: int, case: str) -> SpeechRequest:
    gold = golden(version)
    voice = zero_shot_voice(gold)
    if case.startswith("vc"):
        from models.conditioning import Conditioning

        # Upstream's voice conversion leaves prompt tokens and mel as they were extracted, unaligned.
        voice = Conditioning(voice.embedding, gold.array("fe.speech_token_raw")[0], gold.array("fe.mel24k_raw")[0])
        tokens = tuple(gold.array(f"e2e.{case}.tokens")[0].tolist())
        return SpeechRequest(source_tokens=tokens, conditioning=voice, stream=case == "vc_stream")
    options: dict[str, dict] = {
        "zero_shot": {"stream": False},
        "zero_shot_stream": {"stream": True},
        "zero_shot_speed1.3": {"stream": False, "speed": 1.3},
        "cross_lingual": {"stream": False, "prompt_text": None, "segments": (CROSS_LINGUAL[version],)},
        "instruct2": {"stream": False, "prompt_text": None, "instructions": INSTRUCTIONS[version]},
        "sft": {"stream": False, "prompt_text": None, "conditioning": None, "voice": "spk_a"},
        "zero_shot_spkid": {"stream": False, "prompt_text": None, "conditioning": None, "voice": "zs_b"},
    }
    return zero_shot_request(version, TEXT, **options[case])


@pytest.fixture
def golden_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden runs seeded the n-th vocoder call of a request with 9000 + n."""
    seeded = lambda self, call: torch.Generator().manual_seed(9000 + call)  # noqa: E731
    monkeypatch.setattr(Utterance, "vocoder_generator", seeded)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "case",
    [
        "zero_shot",
        "zero_shot_stream",
        "zero_shot_speed1.3",
        "cross_lingual",
        "instruct2",
        "vc",
        "vc_stream",
        "sft",
        "zero_shot_spkid",
    ],
)
async def test_the_waveform_is_upstreams(version: int, case: str, golden_noise: None) -> None:
    expected = golden(version).array(f"e2e.{case}.wav")[0]
    async with engine(version, greedy, upstream_compat=True) as scheduler:
        blocks, end = await speak(scheduler, _request(version, case))
    assert end.get("code") is None
    assert [len(block) for block in blocks] == golden(version).array(f"e2e.{case}.chunk_lens").tolist()
    difference = np.concatenate(blocks) - expected
    assert np.abs(difference).max() <= PEAK_TOLERANCE
    assert np.sqrt(np.mean(difference**2)) <= RMS_TOLERANCE
