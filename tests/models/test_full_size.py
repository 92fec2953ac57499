"""Checkpoints of the genuine size load, in every spelling upstream writes, and nothing is held in memory twice."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.full_size import shapes, write_folder
from models.config import load_config
from models.errors import ModelError
from models.speech_lm import SpeechLM

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT_HEAD = "llm.model.lm_head.weight"


def write_sparse(state: dict[str, Any], path: Path) -> None:
    """A checkpoint whose weights read as zeros: the file has its full length, but takes next to no disk."""
    with torch.serialization.skip_data():
        torch.save(state, path)


def legacy_spelling(key: str) -> str:
    return key.replace("parametrizations.weight.original0", "weight_g").replace(
        "parametrizations.weight.original1", "weight_v"
    )


@pytest.fixture(scope="module", params=[2, 3])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A model folder of full size: version 2 as a training run leaves it, version 3 in the older spelling."""
    version: int = request.param
    root = tmp_path_factory.mktemp(f"full{version}")
    write_folder(version, root)

    stray = {"epoch": 3, "step": 120000} if version == 2 else {}
    for name in ("llm", "flow"):
        state = {key: torch.empty(shape) for key, shape in shapes(version)[name].items()}
        write_sparse(state | stray, root / f"{name}.pt")
    hift = {key: torch.full(shape, 0.01) for key, shape in shapes(version)["hift"].items()}
    if version == 2:
        hift = {f"generator.{key}": value for key, value in hift.items()}
    else:
        hift = {legacy_spelling(key): value for key, value in hift.items()}
    torch.save(hift | stray, root / "hift.pt")
    return version, root


def megabytes(version: int) -> float:
    """Size of the float32 weights that are used: everything but the text head."""
    used = [shape for file in shapes(version).values() for key, shape in file.items() if key != TEXT_HEAD]
    return sum(4 * math.prod(shape) for shape in used) / 1e6


MEASURE = """
import json, sys, threading, time
from pathlib import Path
import torch
def own():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1e3
from models.cosyvoice import CosyVoice
report, peaks = {"imported": own()}, []
def watch():
    while True:
        peaks.append(own())
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
model = CosyVoice.load(sys.argv[1])
report["loading"], report["loaded"] = max(peaks), own()
cache = model.lm.new_cache()
report["finite"] = bool(model.lm.extend(cache, cache.add(), model.lm.build_input([1, 2, 3], [4, 5])).isfinite().all())
report["finite"] &= bool(model.lm.decode(cache, torch.tensor([7])).isfinite().all())
for network in (model.lm, model.token2wav.flow, model.token2wav.vocoder):
    for weight in (*network.parameters(), *network.buffers()):
        weight.view(-1)[::1024].sum()  # one value of every page: now all of it is in memory
report["touched"] = own()
print(json.dumps(report))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_a_full_size_model_loads_within_its_memory(folder: tuple[int, Path]) -> None:
    version, root = folder
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    weights = megabytes(version)
    print(
        f"\nCosyVoice {version}, fp32, {weights:.0f} MB of weights: {report['imported']:.0f} MB of its own before, "
        f"{report['loading']:.0f} MB at most while it loads, {report['loaded']:.0f} MB then, "
        f"{report['touched']:.0f} MB after every weight was used"
    )
    assert report["finite"]
    assert report["touched"] - report["imported"] < 1.05 * weights + 150
    # The pages of the file come on top, and the kernel takes them back when memory is short.
    assert report["loading"] - report["imported"] < 1.05 * weights + 150


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        pytest.param({"llm_decoder.weight": None}, "checkpoint_missing_key", "llm_decoder.weight", id="missing"),
        pytest.param({"another": (2, 2)}, "checkpoint_extra_key", "another", id="extra"),
        pytest.param(
            {"llm.model.model.layers.23.mlp.up_proj.weight": (4864, 895)},
            "checkpoint_shape",
            "llm.model.model.layers.23.mlp.up_proj.weight is [4864, 895] instead of [4864, 896]",
            id="shape",
        ),
    ],
)
def test_one_wrong_key_among_hundreds_is_named(
    folder: tuple[int, Path], tmp_path: Path, change: dict[str, tuple[int, ...] | None], code: str, named: str
) -> None:
    version, source = folder
    shutil.copytree(source, tmp_path / "model", ignore=shutil.ignore_patterns("*.pt"))
    wanted = {**shapes(version)["llm"], **change}
    state = {key: torch.empty(shape) for key, shape in wanted.items() if shape is not None}
    write_sparse(state, tmp_path / "model" / "llm.pt")
    with pytest.raises(ModelError) as caught:
        SpeechLM.load(load_config(tmp_path / "model"))
    assert caught.value.code == code
    assert named in caught.value.message
    assert "llm.pt" in caught.value.message
