"""What docs/weights.md tells people to copy is true: manifests, patterns, file names, commands."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from models.__main__ import main
from models.config import OPTIONAL_FILES, required_files
from models.manifest import MANIFEST_FILE

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "weights.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_job_that_fills_a_volume_is_valid() -> None:
    (job,) = [block for block in map(yaml.safe_load, blocks("yaml")) if isinstance(block, dict) and "kind" in block]
    assert job["kind"] == "Job"
    kubernetes_validate.validate(job, "1.33", strict=True)


@pytest.mark.parametrize("version", [2, 3])
def test_the_storage_initializers_patterns_take_all_that_is_read_and_no_more(version: int) -> None:
    (line,) = re.findall(r"name: STORAGE_ALLOW_PATTERNS\n\s+value: '(.+)'", TEXT)
    patterns = json.loads(line)
    for name in (*required_files(version), "spk2info.pt"):
        assert any(fnmatch(name, pattern) for pattern in patterns), name
    for name in ("llm.rl.pt", "flow.decoder.estimator.fp32.onnx", "CosyVoice-BlankEN/model.safetensors"):
        assert not any(fnmatch(name, pattern) for pattern in patterns), name


def test_the_modelcar_holds_a_whole_model() -> None:
    (containerfile,) = blocks("dockerfile")
    copied = set(re.findall(r"weights/Fun-CosyVoice3-0\.5B/(\S+)", containerfile))
    for name in (*required_files(3), MANIFEST_FILE):
        assert {name, f"{Path(name).parent}/"} & copied, name


def test_the_table_names_every_file() -> None:
    for version in (2, 3):
        for name in (*required_files(version), *OPTIONAL_FILES, MANIFEST_FILE):
            short = Path(name).name.replace("speech_tokenizer_v3", "_v3")
            assert f"`{short}`" in TEXT, name


def test_the_commands_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = set(re.findall(r"python -m models (\w+)", TEXT)) | set(re.findall(r"python, -m, models, (\w+)", TEXT))
    assert verbs == {"list", "pull", "verify", "manifest", "check"}
    for verb in verbs:
        with pytest.raises(SystemExit) as ended:
            main([verb, "--help"])
        assert ended.value.code == 0
    assert {"--to", "--source", "--revision"} <= set(re.findall(r"--\w+", capsys.readouterr().out))
