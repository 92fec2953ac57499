"""A model folder loads as one model, whatever its widths; what is wrong with a folder is one named error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from models.config import load_config
from models.cosyvoice import CosyVoice
from models.errors import ModelError
from models.flow import Flow
from models.token2wav import Audio, Turn
from tests.golden import golden

REPOSITORY = Path(__file__).resolve().parents[2]
EMBEDDED = (REPOSITORY / "models" / "embedded", REPOSITORY.parent / "shared" / "embedded")


def rng(call: int) -> torch.Generator:
    return torch.Generator().manual_seed(call)


@pytest.mark.parametrize("version", [2, 3])
def test_a_folder_is_a_model(version: int) -> None:
    model = CosyVoice.load(golden(version).dir)
    assert model.config.version == version
    assert set(model.presets) >= {"spk_a", "zs_b"}
    parameters = [
        *model.lm.parameters(),
        *model.token2wav.flow.parameters(),
        *model.token2wav.vocoder.parameters(),
    ]
    assert not any(parameter.is_meta or parameter.requires_grad for parameter in parameters)
    assert not any(buffer.is_meta for buffer in model.token2wav.flow.buffers())


@pytest.fixture(scope="module")
def embedded() -> CosyVoice:
    folder = next((path for path in EMBEDDED if (path / "cosyvoice2.yaml").is_file()), None)
    if folder is None:
        pytest.skip("the embedded voice is not there")
    return CosyVoice.load(folder)


def test_the_embedded_voice_loads_with_its_own_widths_as_float32(embedded: CosyVoice) -> None:
    flow, vocoder = embedded.token2wav.flow, embedded.token2wav.vocoder
    assert flow.input_embedding.weight.shape[1] == 128
    assert vocoder.blocks_per_stage == 1
    for network in (embedded.lm, flow, vocoder):
        assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}


def test_the_embedded_voice_speaks(embedded: CosyVoice) -> None:
    token2wav, (voice,) = embedded.token2wav, embedded.presets.values()
    prompt = token2wav.prompt(voice)
    tokens = [82 * phone for phone in (0, 10, 35, 12, 40, 20, 44, 9, 0) for _ in range(4)]
    (whole,) = token2wav.synthesize([token2wav.whole(tokens, prompt, rng=rng)])
    assert isinstance(whole, Audio)
    assert len(whole.samples) == 960 * len(tokens)
    assert whole.samples.isfinite().all()
    assert whole.samples.abs().max() > 0.01
    state = token2wav.new_stream(prompt, rng=rng)
    assert token2wav.next_hop(state) == 28
    (first,) = token2wav.synthesize([Turn(state, tokens, last=False)])
    assert isinstance(first, Audio)
    (rest,) = token2wav.synthesize([Turn(first.state, tokens, last=True)])
    assert isinstance(rest, Audio)
    assert len(first.samples) + len(rest.samples) == len(whole.samples)
    assert first.samples.isfinite().all()
    assert rest.samples.isfinite().all()


FLOW_KEYS = {2: "encoder.up_encoders.2.self_attn.pos_bias_v", 3: "decoder.estimator.rotary_embed.inv_freq"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (None, "checkpoint_missing_key"),
        (torch.zeros(3, 5, 7), "checkpoint_shape"),
        (torch.zeros(3, dtype=torch.int32), "checkpoint_shape"),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_a_wrong_key_of_the_flow_is_named(version: int, change: torch.Tensor | None, code: str, tmp_path: Path) -> None:
    source, key = golden(version).dir, FLOW_KEYS[version]
    shutil.copy(source / f"cosyvoice{version}.yaml", tmp_path)
    state = torch.load(source / "flow.pt", weights_only=True)
    del state[key]
    if change is not None:
        state[key] = change
    torch.save(state, tmp_path / "flow.pt")
    with pytest.raises(ModelError) as caught:
        Flow.load(load_config(tmp_path))
    assert caught.value.code == code
    assert key in caught.value.message
    assert "flow.pt" in caught.value.message


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["flow.pt", "hift.pt", "llm.pt"])
def test_a_missing_file_is_named(version: int, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(golden(version).dir, folder, ignore=shutil.ignore_patterns(name, "*.npz", "*.onnx"))
    with pytest.raises(ModelError) as caught:
        CosyVoice.load(folder)
    assert caught.value.code == "model_file_missing"
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("solver: 'euler'", "solver: 'midpoint'", "midpoint"),
        ("    output_size: 80\n", "", "output_size"),
        ("channels: [64]", "channels: [64, 64]", "channels"),
    ],
)
def test_a_flow_section_that_cannot_be_built_is_explained(old: str, new: str, said: str, tmp_path: Path) -> None:
    source = golden(2).dir
    shutil.copy(source / "flow.pt", tmp_path)
    text = (source / "cosyvoice2.yaml").read_text()
    assert old in text
    (tmp_path / "cosyvoice2.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ModelError) as caught:
        Flow.load(load_config(tmp_path))
    assert caught.value.code == "model_config_invalid"
    assert said in caught.value.message


def test_a_tokenizer_larger_than_the_text_embedding_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(golden(2).dir, folder, ignore=shutil.ignore_patterns("*.npz", "*.onnx"))
    state = torch.load(folder / "llm.pt", weights_only=True)
    name = "llm.model.model.embed_tokens.weight"
    state[name] = state[name][:520].clone()
    torch.save(state, folder / "llm.pt")
    config = (folder / "CosyVoice-BlankEN" / "config.json").read_text()
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(config.replace('"vocab_size": 576', '"vocab_size": 520'))
    with pytest.raises(ModelError) as caught:
        CosyVoice.load(folder)
    assert caught.value.code == "checkpoint_shape"
    assert "tokenizer" in caught.value.message
