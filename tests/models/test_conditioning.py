"""Voices: presets of both upstream kinds, and a byte form that loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.conditioning import Conditioning, load_presets
from models.config import load_config
from models.errors import ModelError
from tests.golden import golden

VERSIONS = [2, 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_saved_zero_shot_voice_is_the_golden_conditioning(version: int) -> None:
    reference = golden(version)
    voice = load_presets(reference.dir / "spk2info.pt", load_config(reference.dir))["zs_b"]
    np.testing.assert_array_equal(voice.prompt_text_ids, reference.array("zs.prompt_text")[0])
    np.testing.assert_array_equal(voice.prompt_tokens, reference.array("zs.flow_prompt_speech_token")[0])
    np.testing.assert_allclose(voice.prompt_mel, reference.array("zs.prompt_speech_feat")[0], atol=1e-5)
    np.testing.assert_allclose(voice.embedding, reference.array("zs.flow_embedding")[0], atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preset_has_only_its_x_vector(version: int) -> None:
    reference = golden(version)
    config = load_config(reference.dir)
    voice = load_presets(reference.dir / "spk2info.pt", config)["spk_a"]
    assert voice.embedding.shape == (config.spk_embed_dim,)
    assert voice.prompt_tokens.shape == (0,)
    assert voice.prompt_mel.shape == (0, config.mel.num_mels)
    assert voice.prompt_text_ids == ()


def test_no_presets_is_no_error(tmp_path: Path) -> None:
    assert load_presets(tmp_path / "spk2info.pt", load_config(golden(2).dir)) == {}


@pytest.mark.parametrize("name", ["spk_a", "zs_b"])
def test_bytes_lose_nothing(name: str) -> None:
    reference = golden(3)
    voice = load_presets(reference.dir / "spk2info.pt", load_config(reference.dir))[name]
    again = Conditioning.from_bytes(voice.to_bytes())
    assert again.prompt_text_ids == voice.prompt_text_ids
    for field in ("embedding", "prompt_tokens", "prompt_mel"):
        before, after = getattr(voice, field), getattr(again, field)
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("data", [b"", b"no voice", b"\x08\0\0\0\0\0\0\0{}      "])
def test_bytes_that_are_no_voice(data: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        Conditioning.from_bytes(data)
    assert caught.value.code == "preset_invalid"


def zero_shot(**changes: Any) -> dict[str, Any]:
    record = {
        "prompt_text": torch.ones(1, 4, dtype=torch.int32),
        "llm_prompt_speech_token": torch.ones(1, 5, dtype=torch.int32),
        "flow_prompt_speech_token": torch.ones(1, 5, dtype=torch.int32),
        "prompt_speech_feat": torch.zeros(1, 10, 80),
        "flow_embedding": torch.zeros(1, 192),
    }
    return {key: value for key, value in (record | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("record", "named"),
    [
        pytest.param({}, "flow_prompt_speech_token", id="nothing"),
        pytest.param(zero_shot(flow_embedding=None), "flow_embedding", id="no x-vector"),
        pytest.param(zero_shot(prompt_speech_feat=torch.zeros(1, 9, 80)), "9 mel frames", id="unaligned"),
        pytest.param(zero_shot(llm_prompt_speech_token=torch.zeros(1, 5)), "differ", id="two prompts"),
        pytest.param({"embedding": torch.zeros(1, 100)}, "192", id="narrow x-vector"),
        pytest.param(zero_shot(flow_embedding=torch.zeros(1, 7)), "192", id="narrow flow x-vector"),
        pytest.param({"embedding": "x"}, "spk", id="no tensor"),
        pytest.param("x", "spk", id="no record"),
    ],
)
def test_a_wrong_voice_is_named(tmp_path: Path, record: Any, named: str) -> None:
    path = tmp_path / "spk2info.pt"
    torch.save({"spk": record}, path)
    with pytest.raises(ModelError, match=named) as caught:
        load_presets(path, load_config(golden(2).dir))
    assert caught.value.code == "preset_invalid"
    assert "spk" in caught.value.message


def test_a_damaged_voice_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "spk2info.pt"
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ModelError, match=r"spk2info\.pt") as caught:
        load_presets(path, load_config(golden(2).dir))
    assert caught.value.code == "checkpoint_unreadable"
    assert "weights_only" not in caught.value.message
