"""A model folder's yaml is data: versions, references, rates and sampling come from it; nothing is constructed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from models import config as configuration
from models.config import EMBEDDED, ModelConfig, SamplingConfig, load_config, model_dir
from models.errors import ModelError
from models.recipe import read_recipe
from tests.golden import golden

MINIMAL = """
sample_rate: 24000
spk_embed_dim: 192
token_frame_rate: 25
token_mel_ratio: 2
chunk_size: 25
llm: !new:some.Model
    speech_token_size: 6561
    sampling: !name:some.function
        {top_p: 0.8, top_k: 25, win_size: 10, tau_r: 0.1}
flow: !new:some.Flow
    pre_lookahead_len: 3
hift: !new:some.Vocoder
    sampling_rate: !ref <sample_rate>
feat_extractor: !name:some.function
    {n_fft: 1920, num_mels: 80, sampling_rate: !ref <sample_rate>, hop_size: 480, win_size: 1920, fmin: 0, fmax: null}
"""


def folder(tmp_path: Path, text: str = MINIMAL, name: str = "cosyvoice2.yaml") -> Path:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def recipe(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path)


@pytest.mark.parametrize(("version", "fmax"), [(2, 8000.0), (3, None)])
def test_the_golden_folders(version: int, fmax: float | None) -> None:
    config = load_config(golden(version).dir)
    assert config.version == version
    assert config.name == f"cosyvoice{version}_tiny"
    assert (config.sample_rate, config.token_frame_rate, config.token_mel_ratio) == (24000, 25, 2)
    assert (config.chunk_size, config.pre_lookahead_len, config.spk_embed_dim) == (25, 3, 192)
    assert config.sampling == SamplingConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.1)
    assert (config.mel.n_fft, config.mel.num_mels, config.mel.sampling_rate) == (1920, 80, 24000)
    assert (config.mel.fmin, config.mel.fmax) == (0.0, fmax)
    assert config.llm["speech_token_size"] == 6561


def test_references_reach_into_sections_and_calculate() -> None:
    estimator = load_config(golden(3).dir).flow["decoder"]["estimator"]
    assert estimator["static_chunk_size"] == 50
    assert estimator["num_decoding_left_chunks"] == -1


def test_tags_construct_nothing(tmp_path: Path) -> None:
    text = """
    a: !new:os.system ["touch made"]
    b: !apply:subprocess.check_call [["false"]]
    c: !name:builtins.exit
    d: !!python/object/apply:os.system ["touch made"]
    """
    with pytest.raises(ModelError):  # Python's own tags are refused
        recipe(tmp_path, text)
    assert recipe(tmp_path, text.replace("    d:", "    #"))["c"] is None
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: 2\ny: !ref <x> * 3 + 1", 7),
        ("x: 7\ny: !ref -<x> // 2", -4),
        ("x: {z: {w: 5}}\ny: !ref <x[z][w]>", 5),
        ("x: [1, 2]\ny: !ref <x>", [1, 2]),
        ("x: models\ny: !ref <x>/text", "models/text"),
        ("x: ''\ny: !ref <x>", ""),
        ("y: 1e-6", 1e-6),
        ("y: 1.5E+2", 150.0),
        ("x: 1\nz: !ref <x>\ny: !ref <z> + <x>", 2),
    ],
)
def test_references(tmp_path: Path, text: str, value: object) -> None:
    assert recipe(tmp_path, text)["y"] == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("y: !ref <nothing>", "nothing"),
        ("x: !ref <y>\ny: !ref <x>", "circle"),
        ("x: 1\ny: !ref __import__('os').getpid() + <x>", "calculates"),
        ("x: 1\ny: !ref <x> ** 999999999", "calculates"),
        ("x: 1\ny: !ref <x> / 0", "division"),
        ("x: [", "not valid yaml"),
        ("- 1", "no mapping"),
        ("[" * 5000, "not valid yaml"),
        ("x: 2001-99-99", "not valid yaml"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ModelError, match=named) as caught:
        recipe(tmp_path, text)
    assert caught.value.code == "model_config_invalid"
    assert "recipe.yaml" in caught.value.message


def test_rates_stated_only_in_the_flow_section_are_found(tmp_path: Path) -> None:
    text = MINIMAL
    for line in ("token_frame_rate: 25\n", "token_mel_ratio: 2\n", "chunk_size: 25\n", "spk_embed_dim: 192\n"):
        text = text.replace(line, "")
    flow = (
        "    input_frame_rate: 25\n    token_mel_ratio: 2\n    spk_embed_dim: 192\n"
        "    encoder: {static_chunk_size: 25}\nhift:"
    )
    config = load_config(folder(tmp_path, text.replace("hift:", flow, 1)))
    assert (config.token_frame_rate, config.token_mel_ratio, config.chunk_size) == (25, 2, 25)
    assert config.spk_embed_dim == 192


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sample_rate: 24000", "rate: 24000", "sample_rate"),
        ("token_frame_rate: 25", "", "token_frame_rate"),
        ("chunk_size: 25", "chunk_size: many", "chunk_size"),
        ("chunk_size: 25", "chunk_size: 2.5", "chunk_size"),
        ("chunk_size: 25", "chunk_size: .inf", "chunk_size"),
        ("sample_rate: 24000", "sample_rate: 0", "sample_rate"),
        ("top_p: 0.8, ", "", "top_p"),
        ("tau_r: 0.1", "tau_r: true", "tau_r"),
        ("    pre_lookahead_len: 3", "    other: 3", "pre_lookahead_len"),
        ("hop_size: 480, ", "", "hop_size"),
        ("llm: !new:some.Model", "lm: !new:some.Model", "llm"),
        ("hift: !new:some.Vocoder", "vocoder: !new:some.Vocoder", "hift"),
    ],
)
def test_a_missing_or_wrong_value_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in MINIMAL
    with pytest.raises(ModelError, match=named) as caught:
        load_config(folder(tmp_path, MINIMAL.replace(old, new, 1)))
    assert caught.value.code == "model_config_invalid"
    assert "cosyvoice2.yaml" in caught.value.message


def test_no_folder_no_yaml_and_version_1(tmp_path: Path) -> None:
    def code_of(path: Path) -> str:
        with pytest.raises(ModelError) as caught:
            load_config(path)
        assert str(path) in caught.value.message
        return caught.value.code

    assert code_of(tmp_path / "absent") == "model_file_missing"
    assert code_of(tmp_path) == "model_unrecognised"
    assert code_of(folder(tmp_path, name="cosyvoice.yaml")) == "model_unrecognised"


def test_the_version_is_that_of_the_yaml_name(tmp_path: Path) -> None:
    assert load_config(folder(tmp_path, name="cosyvoice3.yaml")).version == 3


# --- what a folder declares about itself


def declared(tmp_path: Path, content: object) -> ModelConfig:
    root = folder(tmp_path)
    (root / "cosyserve.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return load_config(root)


def test_a_genuine_folder_declares_nothing(tmp_path: Path) -> None:
    config = load_config(folder(tmp_path))
    assert config.name == tmp_path.name
    assert config.folder.frontend == "upstream"
    assert config.folder.max_words is None


def test_a_folder_declares_its_name_and_front_end(tmp_path: Path) -> None:
    config = declared(tmp_path, {"name": "my-voice", "frontend": "phonemes", "languages": ["en"], "max_words": 16})
    assert config.name == "my-voice"
    assert (config.folder.frontend, config.folder.languages, config.folder.max_words) == ("phonemes", ("en",), 16)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[" * 200_000,
        {"frontent": "phonemes"},
        {"frontend": "magic"},
        {"max_words": "16"},
        {"languages": "en"},
        {"max_words": True},
    ],
)
def test_a_wrong_declaration_is_an_error(tmp_path: Path, content: object) -> None:
    with pytest.raises(ModelError, match=r"cosyserve\.json") as caught:
        declared(tmp_path, content)
    assert caught.value.code == "model_config_invalid"


def test_reading_a_folder_imports_no_torch() -> None:
    code = (
        "import sys, models.config, models.tokenizer, models.conditioning, models.errors\n"
        f"models.config.load_config({str(golden(2).dir)!r})\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- which folder


def test_a_mounted_folder_is_taken_if_anything_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = tmp_path / "mnt" / "models"
    monkeypatch.setattr(configuration, "MOUNTED", mounted)
    monkeypatch.delenv("MODEL_DIR", raising=False)
    monkeypatch.delenv("STORAGE_URI", raising=False)
    assert model_dir() == EMBEDDED
    monkeypatch.setenv("STORAGE_URI", "pvc://weights/model")  # weights that do not come are no reason to take others
    assert model_dir() == mounted
    monkeypatch.delenv("STORAGE_URI")
    mounted.mkdir(parents=True)
    assert model_dir() == EMBEDDED
    (mounted / "anything").touch()
    assert model_dir() == mounted
    monkeypatch.setenv("MODEL_DIR", "")
    assert model_dir() == mounted
    monkeypatch.setenv("MODEL_DIR", str(tmp_path))
    assert model_dir() == tmp_path


def test_a_mounted_folder_is_called_after_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "MOUNTED", tmp_path)
    assert load_config(folder(tmp_path, name="cosyvoice3.yaml")).name == "cosyvoice3"
    (tmp_path / "cosyserve.json").write_text('{"name": "my-voice"}')
    assert load_config(tmp_path).name == "my-voice"


@pytest.mark.parametrize("closed", ["", "cosyvoice2.yaml"])
def test_weights_that_may_not_be_read_are_an_error_and_no_reason_to_take_others(closed: str, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    tmp_path.chmod(0o755)
    path = folder(tmp_path / "models") / closed
    code = (
        "import os; from pathlib import Path; from models import config; from models.errors import ModelError\n"
        f"os.chdir({str(tmp_path)!r})\n"  # by a relative path: pytest's own folders are closed to others
        "config.MOUNTED = Path('models')\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: config.load_config(config.model_dir())\n"
        "except ModelError as error: print(error.message)"
    )
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        path.chmod(mode)
    assert re.search("may not be read by this user .uid [1-9]", done.stdout), done.stderr
