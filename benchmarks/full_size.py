"""Model folders of the genuine size, made from the genuine lists of keys and shapes; the weights are random.

For measuring what size costs (memory, start, first audio) where the genuine weights are not at hand. What such a model
says is noise.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import shutil
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
KEYS = ROOT / "tests" / "data" / "full_size" / "checkpoint_keys.json.gz"  # genuine keys and shapes
TINY = ROOT / "tests" / "data" / "golden"

QWEN2_05B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "vocab_size": 151936,
}
# The tiny yaml of the golden set, line by line, with the genuine sizes.
YAML_SIZES = {
    2: {
        "llm_input_size: 64": "llm_input_size: 896",
        "llm_output_size: 64": "llm_output_size: 896",
        "    input_size: 64": "    input_size: 512",
        "        input_size: 64": "        input_size: 512",
        "        output_size: 64": "        output_size: 512",
        "        attention_heads: 4": "        attention_heads: 8",
        "        linear_units: 128": "        linear_units: 2048",
        "        num_blocks: 2": "        num_blocks: 6",
        "            channels: [64]": "            channels: [256]",
        "            attention_head_dim: 16": "            attention_head_dim: 64",
        "            n_blocks: 2": "            n_blocks: 4",
        "            num_mid_blocks: 2": "            num_mid_blocks: 12",
        "            num_heads: 4": "            num_heads: 8",
        "    base_channels: 64": "    base_channels: 512",
        "        cond_channels: 32": "        cond_channels: 512",
    },
    3: {
        "llm_input_size: 64": "llm_input_size: 896",
        "llm_output_size: 64": "llm_output_size: 896",
        "        channels: 96": "        channels: 1024",
        "            dim: 64": "            dim: 1024",
        "            depth: 3": "            depth: 22",
        "            heads: 4": "            heads: 16",
        "            dim_head: 16": "            dim_head: 64",
        "    base_channels: 64": "    base_channels: 512",
        "        cond_channels: 32": "        cond_channels: 512",
    },
}


@functools.cache
def shapes(version: int) -> dict[str, dict[str, list[int]]]:
    """Key to shape, per file."""
    return json.loads(gzip.decompress(KEYS.read_bytes()))[str(version)]


def write_folder(version: int, root: Path) -> None:
    """Everything of a CosyVoice `version` folder of full size but its three checkpoints."""
    source = TINY / f"cosyvoice{version}_tiny"
    shutil.copytree(source / "CosyVoice-BlankEN", root / "CosyVoice-BlankEN")
    (root / "CosyVoice-BlankEN" / "config.json").write_text(json.dumps(QWEN2_05B))
    for onnx in source.glob("*.onnx"):
        shutil.copy(onnx, root)
    text = (source / f"cosyvoice{version}.yaml").read_text()
    for old, new in YAML_SIZES[version].items():
        text, count = re.subn(f"(?m)^{re.escape(old)}$", new, text)
        if count != 1:
            raise ValueError(f"{old!r} is {count} times in the yaml")
    (root / f"cosyvoice{version}.yaml").write_text(text)


def write_model(version: int, root: Path) -> None:
    """A whole folder that can be served: some 2 to 3 GB of random float32 weights, and one preset voice, `random`."""
    root.mkdir(parents=True)
    write_folder(version, root)
    generator = torch.Generator().manual_seed(0)
    for name in ("llm", "flow", "hift"):
        state = {key: _random(key, shape, generator) for key, shape in shapes(version)[name].items()}
        torch.save(state, root / f"{name}.pt")
    torch.save({"random": {"embedding": torch.randn(1, 192, generator=generator)}}, root / "spk2info.pt")


def _random(key: str, shape: list[int], generator: torch.Generator) -> Tensor:
    """Small enough that activations stay finite; scales (norms, weight norm's g, Snake's alpha) near one."""
    if key.endswith(("norm.weight", "original0", "weight_g", "alpha")) or "layernorm" in key:
        return torch.ones(shape)
    return 0.02 * torch.randn(shape, generator=generator)
