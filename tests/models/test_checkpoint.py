"""State dicts are read memory-mapped, in every spelling, and refused with one clear error when they do not fit."""

from __future__ import annotations

import copy
import gc
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from models.checkpoint import fold_weight_norm, load_strict, read_state_dict
from models.cosyvoice import CosyVoice
from models.errors import ModelError
from tests.golden import golden


def saved(tmp_path: Path, content: Any, **options: Any) -> Path:
    path = tmp_path / "net.pt"
    torch.save(content, path, **options)
    return path


def error_of(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read_state_dict(path)
    assert str(path) in caught.value.message
    return caught.value


# --- reading


def test_tensors_come_back_by_name(tmp_path: Path) -> None:
    state = OrderedDict(a=torch.randn(3, 4), b=torch.arange(5))
    loaded = read_state_dict(saved(tmp_path, state))
    assert list(loaded) == ["a", "b"]
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_a_training_checkpoint_is_accepted(tmp_path: Path) -> None:
    content = {"generator.conv.weight": torch.ones(2), "epoch": 12, "step": torch.tensor(3)}
    assert list(read_state_dict(saved(tmp_path, content))) == ["conv.weight"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_reading_maps_the_file_and_leaves_it_unchanged(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.zeros(1000)})
    before = path.read_bytes()
    loaded = read_state_dict(path)
    assert any(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())
    loaded["w"].fill_(1.0)
    assert path.read_bytes() == before


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("version", [2, 3])
def test_a_loaded_model_is_left_alone_by_what_happens_to_its_folder(
    version: int, dtype: torch.dtype, tmp_path: Path
) -> None:
    """A byte of a file that has been cut short underneath its mapping cannot be read: it ends the process (SIGBUS)."""
    folder = shutil.copytree(golden(version).dir, tmp_path / "model")
    model = CosyVoice.load(folder, lm_dtype=dtype, flow_dtype=dtype)
    gc.collect()
    assert model.lm.dtype == dtype
    assert str(folder) not in Path("/proc/self/maps").read_text()


def test_files_of_old_torch_are_read_too(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.ones(3)}, _use_new_zipfile_serialization=False)
    assert torch.equal(read_state_dict(path)["w"], torch.ones(3))


def test_a_missing_file(tmp_path: Path) -> None:
    assert error_of(tmp_path / "absent.pt").code == "model_file_missing"


class Unpickled:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"no checkpoint at all", "damaged", id="text"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull", id="lfs pointer"),
        pytest.param("cut", "damaged", id="cut short"),
        pytest.param([torch.ones(1)], "not a state dict", id="list"),
        pytest.param({"w": torch.ones(1), "config": "x"}, "config", id="more than tensors"),
        pytest.param({"w": Unpickled()}, "damaged", id="code"),
    ],
)
def test_what_is_no_state_dict(tmp_path: Path, content: Any, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "cut":
        whole = saved(tmp_path, {"w": torch.ones(5000)}).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    else:
        saved(tmp_path, content)
    error = error_of(path)
    assert error.code == "checkpoint_unreadable"
    assert named in error.message
    assert "executed" not in capsys.readouterr().out


def test_weights_that_may_not_be_read_are_one_sentence(tmp_path: Path) -> None:
    for name in ("llm.pt", "spk2info.pt"):
        (tmp_path / name).touch(mode=0)
    tmp_path.chmod(0o755)
    code = (
        "import os, torch; from models import checkpoint, conditioning, config; from models.errors import ModelError\n"
        f"voice = config.load_config({str(golden(2).dir)!r})\n"
        f"os.chdir({str(tmp_path)!r})\n"  # by a relative path: pytest's own folders are closed to others
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "def load(read, *arguments):\n"
        "    try: read(*arguments)\n"
        "    except ModelError as error: print(error.code, error.message)\n"
        "load(checkpoint.read_state_dict, 'llm.pt')\n"
        "load(conditioning.load_presets, 'spk2info.pt', voice)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f"checkpoint_unreadable {name} cannot be read: Permission denied" for name in ("llm.pt", "spk2info.pt")
    ], done.stderr


# --- weight normalisation


Conv = nn.Conv1d | nn.ConvTranspose1d


def normalised(conv: Conv, spelling: str) -> tuple[dict[str, Tensor], Tensor]:
    """The state dict of a weight-normalised layer, and the weight it computes with."""
    normalise = parametrizations.weight_norm if spelling == "parametrizations" else nn.utils.weight_norm
    layer = normalise(copy.deepcopy(conv))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    layer(torch.zeros(1, conv.in_channels, 20))  # the legacy form computes its weight here
    state = {f"conv.{key}": value for key, value in layer.state_dict().items()}
    return state, layer.weight.detach().clone()


@pytest.mark.parametrize("spelling", ["parametrizations", "legacy"])
@pytest.mark.parametrize("layer", [nn.Conv1d(4, 6, 3), nn.ConvTranspose1d(4, 6, 3)])
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_both_spellings_fold_to_the_weight_that_torch_computes(spelling: str, layer: Conv) -> None:
    state, weight = normalised(layer, spelling)
    folded = fold_weight_norm(state)
    assert set(folded) == {"conv.weight", "conv.bias"}
    torch.testing.assert_close(folded["conv.weight"], weight, rtol=1e-6, atol=1e-6)


def test_half_precision_pairs_fold_in_float32() -> None:
    g, v = torch.full((2, 1, 1), 3.0, dtype=torch.float16), torch.ones(2, 2, 2, dtype=torch.float16)
    folded = fold_weight_norm({"a.weight_g": g, "a.weight_v": v})["a.weight"]
    assert folded.dtype == torch.float32
    torch.testing.assert_close(folded, torch.full((2, 2, 2), 1.5))


@pytest.mark.parametrize(
    "state",
    [
        {"a.weight_g": torch.ones(2, 1, 1)},
        {"a.weight_v": torch.ones(2, 2, 2)},
        {"a.weight_g": torch.ones(3, 1, 1), "a.weight_v": torch.ones(2, 2, 2)},
        {"a.parametrizations.weight.original0": torch.ones(2), "a.parametrizations.weight.original1": torch.ones(2, 2)},
    ],
)
def test_half_a_pair_stays_for_strict_loading_to_name(state: dict[str, Tensor]) -> None:
    assert set(fold_weight_norm(state)) == set(state)


# --- strict loading


class Net(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))


def good() -> dict[str, Tensor]:
    return {
        "linear.weight": torch.randn(2, 3),
        "linear.bias": torch.randn(2),
        "count": torch.ones(1, dtype=torch.int64),
    }


def net() -> Net:
    with torch.device("meta"):
        return Net()


def test_loaded_weights_are_copies() -> None:
    module, state = net(), good()
    load_strict(module, state, "net.pt", dtype=torch.float32)
    assert torch.equal(module.linear.weight, state["linear.weight"])
    assert module.linear.weight.data_ptr() != state["linear.weight"].data_ptr()
    assert module.count.data_ptr() != state["count"].data_ptr()
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16])
def test_floats_become_the_wanted_type_and_integers_stay(stored: torch.dtype, wanted: torch.dtype) -> None:
    module = net()
    state = {key: value.to(stored) if value.is_floating_point() else value for key, value in good().items()}
    load_strict(module, state, "net.pt", dtype=wanted)
    assert module.linear.weight.dtype == wanted
    assert module.count.dtype == torch.int64


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"linear.bias": None}, "checkpoint_missing_key", "missing keys: linear.bias"),
        ({"linear.scale": torch.ones(1)}, "checkpoint_extra_key", "unknown keys: linear.scale"),
        ({"linear.bias": torch.ones(3)}, "checkpoint_shape", "linear.bias is [3] instead of [2]"),
        ({"linear.bias": torch.ones(2, dtype=torch.int8)}, "checkpoint_dtype", "linear.bias is int8"),
        ({"linear.bias": torch.ones(2, dtype=torch.float64)}, "checkpoint_dtype", "linear.bias is float64"),
        ({"count": torch.ones(1)}, "checkpoint_dtype", "count is float32"),
    ],
)
def test_every_misfit_is_named(change: dict[str, Tensor | None], code: str, named: str) -> None:
    state = {key: value for key, value in (good() | change).items() if value is not None}
    with pytest.raises(ModelError) as caught:
        load_strict(net(), state, "folder/net.pt")
    assert caught.value.code == code
    assert named in caught.value.message
    assert "folder/net.pt" in caught.value.message


def test_all_misfits_are_in_one_error() -> None:
    state = good() | {"linear.weight": torch.ones(1), **{f"extra{i}": torch.ones(1) for i in range(9)}}
    del state["count"]
    with pytest.raises(ModelError) as caught:
        load_strict(net(), state, "net.pt")
    assert caught.value.code == "checkpoint_missing_key"
    for part in ("count", "extra0", "and 4 more", "linear.weight is [1]"):
        assert part in caught.value.message
