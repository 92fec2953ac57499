"""A folder with a manifest is held against it: names and sizes at every start, every byte when asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.__main__ import main
from models.config import EMBEDDED, files_of, load_config
from models.errors import ModelError
from models.manifest import MANIFEST_FILE, read_manifest, sha256_of, verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The embedded voice with a manifest."""
    root = Path(shutil.copytree(EMBEDDED, tmp_path / "model"))
    assert main(["manifest", str(root), "--name", "my-voice"]) == 0
    return root


def test_the_manifest_lists_what_the_service_reads(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert manifest is not None
    assert sorted(manifest.files) == files_of(folder)
    assert "README.md" not in manifest.files
    assert load_config(folder).name == "my-voice"


def test_its_checksums_are_those_of_sha256sum(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert manifest is not None
    lines = "".join(f"{record.sha256}  {name}\n" for name, record in manifest.files.items())
    done = subprocess.run(["sha256sum", "--check", "--strict"], cwd=folder, input=lines, text=True, check=False)
    assert done.returncode == 0


def test_a_truncated_and_a_missing_file_stop_the_start(folder: Path) -> None:
    with (folder / "llm.pt").open("rb+") as file:
        file.truncate(1000)
    (folder / "spk2info.pt").unlink()
    with pytest.raises(ModelError, match=r"llm\.pt has 1000 bytes instead of \d+.*") as caught:
        load_config(folder)
    assert caught.value.code == "checksum_mismatch"
    assert "spk2info.pt is missing" in caught.value.message


def test_one_changed_bit_is_found_by_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    assert "all 13 files are right" in capsys.readouterr().out
    content = bytearray((folder / "flow.pt").read_bytes())
    content[5000] ^= 1
    (folder / "flow.pt").write_bytes(content)
    load_config(folder)  # the start looks at sizes only
    assert main(["verify", str(folder)]) == 1
    assert "flow.pt has another content" in capsys.readouterr().err


def test_a_meant_change_gets_a_new_manifest(folder: Path) -> None:
    (folder / "spk2info.pt").unlink()
    assert main(["verify", str(folder)]) == 1
    assert main(["manifest", str(folder)]) == 0
    assert main(["verify", str(folder)]) == 0
    assert load_config(folder).name == "my-voice"


def test_a_folder_without_a_manifest_cannot_be_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(EMBEDDED)]) == 1
    assert "python -m models manifest" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"name": null, "files": []}',
        '{"name": 7, "files": {}}',
        '{"name": null, "files": {}, "more": 1}',
        '{"name": null, "files": {"../outside": {"size": 1, "sha256": "%s"}}}' % ("0" * 64),
        '{"name": null, "files": {"/etc/passwd": {"size": 1, "sha256": "%s"}}}' % ("0" * 64),
        '{"name": null, "files": {"llm.pt": {"size": "1", "sha256": "%s"}}}' % ("0" * 64),
        '{"name": null, "files": {"llm.pt": {"size": 1, "sha256": "short"}}}',
        '{"name": null, "files": {"llm.pt": {"size": 1}}}',
        "[" * 200_000,
    ],
)
def test_a_manifest_that_cannot_be_read_is_an_error(folder: Path, content: str) -> None:
    (folder / MANIFEST_FILE).write_text(content)
    with pytest.raises(ModelError, match=MANIFEST_FILE) as caught:
        load_config(folder)
    assert caught.value.code == "manifest_invalid"


def test_a_folder_in_the_manifests_place_is_an_error_too(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()
    (folder / MANIFEST_FILE).mkdir()
    with pytest.raises(ModelError, match=MANIFEST_FILE) as caught:
        load_config(folder)
    assert caught.value.code == "manifest_invalid"


def test_check_loads_everything_and_says_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder)]) == 0
    assert "my-voice: CosyVoice 2, 24000 Hz; voices: cosy" in capsys.readouterr().out
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    (folder / "hift.pt").write_bytes(b"no checkpoint")
    manifest["files"]["hift.pt"] = {"size": 13, "sha256": sha256_of(folder / "hift.pt")}
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    verified = read_manifest(folder)
    assert verified is not None
    verify(folder, verified)
    assert main(["check", str(folder)]) == 1
    assert "hift.pt" in capsys.readouterr().err


def test_the_list_names_the_known_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "iic/CosyVoice2-0.5B" in capsys.readouterr().out


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("verify", "manifest", "check"):
        assert main([verb, str(tmp_path / "absent")]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_the_command_needs_no_torch_to_pull(tmp_path: Path) -> None:
    code = "import sys, models.__main__; sys.exit(bool({'torch', 'bentoml', 'huggingface_hub'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
