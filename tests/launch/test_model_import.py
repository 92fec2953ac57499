"""A model folder goes into BentoML's model store whole, under a tag that its content decides, and is served from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.server import ROOT
from models.config import EMBEDDED, files_of, load_config
from models.errors import ModelError
from models.manifest import read_manifest, verify
from runners.model_folder import model_folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """BENTOML_HOME of a store of its own, for this process and those it starts."""
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED, tmp_path / "My Voice"))


def model_import(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launch.model_import", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def tag_of(*arguments: str) -> str:
    done = model_import(*arguments)
    assert done.returncode == 0, done.stderr
    (tag,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("tag")]
    assert f"make serve MODEL_DIR=bento:{tag}" in done.stdout
    return tag


def resolve(named: str) -> Path:
    """In a process of its own: BentoML reads BENTOML_HOME once."""
    code = f"from runners.model_folder import model_folder; print(model_folder({named!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModelError("model_file_missing", done.stderr.strip().splitlines()[-1])
    return Path(done.stdout.strip())


def test_a_folder_is_imported_and_found_by_its_tag(store: Path, folder: Path) -> None:
    tag = tag_of(str(folder), "--name", "voice")
    name, _, version = tag.partition(":")
    assert name == "voice"
    stored = resolve(f"bento:{tag}")
    assert stored == store / "models" / name / version
    assert resolve("bento:voice") == stored
    assert load_config(stored).name == "voice"
    assert files_of(stored) == files_of(folder)
    for file in files_of(folder):
        assert (stored / file).read_bytes() == (folder / file).read_bytes(), file
    manifest = read_manifest(stored)
    assert manifest is not None
    verify(stored, manifest)


def test_the_name_in_the_store_is_the_models_own_unless_given(store: Path, folder: Path) -> None:
    assert tag_of(str(folder)).startswith("my-voice:")


def test_the_same_files_have_the_same_tag_and_others_another(store: Path, folder: Path) -> None:
    first = tag_of(str(folder), "--name", "voice")
    assert tag_of(str(folder), "--name", "voice") == first
    (folder / "spk2info.pt").unlink()
    second = tag_of(str(folder), "--name", "voice")
    assert second != first
    assert resolve("bento:voice") == resolve(f"bento:{second}")
    assert (resolve(f"bento:{first}") / "spk2info.pt").is_file()


def test_an_import_during_which_another_one_is_done_is_done_too(store: Path, folder: Path) -> None:
    """It comes up against the other one's tag only when it saves."""
    faster = (
        "import subprocess, sys; import launch.model_import as slower; save = slower._save\n"
        "def late(*arguments):\n"
        "    command = [sys.executable, '-m', 'launch.model_import', *sys.argv[1:]]\n"
        "    subprocess.run(command, check=True, capture_output=True)\n"
        "    save(*arguments)\n"
        "slower._save = late\n"
        "from pathlib import Path; from launch.terminal import run\n"
        "sys.exit(run('model-import', lambda progress: slower.model_import(Path(sys.argv[1]), 'voice', progress)))"
    )
    command = [sys.executable, "-c", faster, str(folder), "--name", "voice"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert f"bento:{tag_of(str(folder), '--name', 'voice')}" in done.stdout


def test_a_store_with_half_a_model_is_one_sentence(store: Path, folder: Path) -> None:
    name, _, version = tag_of(str(folder), "--name", "voice").partition(":")
    (store / "models" / name / version / "model.yaml").unlink()  # as a copy that was cut off leaves it
    done = model_import(str(folder), "--name", "voice")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("model-import: ")
    assert "Traceback" not in done.stderr


def test_a_damaged_folder_is_not_imported(store: Path, folder: Path) -> None:
    manifest = [sys.executable, "-m", "models", "manifest", str(folder)]
    assert subprocess.run(manifest, cwd=ROOT, capture_output=True, check=False).returncode == 0
    content = bytearray((folder / "flow.pt").read_bytes())
    content[5000] ^= 1
    (folder / "flow.pt").write_bytes(content)
    done = model_import(str(folder))
    assert done.returncode == 1
    assert "flow.pt has another content" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((store / "models").rglob("flow.pt"))


@pytest.mark.parametrize(
    ("arguments", "named"), [(["/no/such/folder"], "/no/such/folder"), ([str(EMBEDDED), "--name", "A B"], "'A B'")]
)
def test_what_cannot_be_imported_is_one_sentence(store: Path, arguments: list[str], named: str) -> None:
    done = model_import(*arguments)
    assert done.returncode == 1
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("tag", ["nothing", "nothing:1", "no such", ""])
def test_a_tag_that_the_store_does_not_have_is_named(store: Path, tag: str) -> None:
    with pytest.raises(ModelError, match=f"MODEL_DIR=bento:{tag}: .* has no such model"):
        resolve(f"bento:{tag}")


def test_a_folder_is_resolved_without_bentoml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "bentoml", None)
    monkeypatch.setenv("MODEL_DIR", str(tmp_path))
    assert model_folder() == tmp_path
    monkeypatch.delenv("MODEL_DIR")
    assert model_folder("elsewhere") == Path("elsewhere")


def test_the_service_speaks_from_the_store(store: Path, tmp_path: Path) -> None:
    tag = tag_of(str(EMBEDDED), "--name", "voice")
    request, wav = tmp_path / "request.json", tmp_path / "speech.wav"
    request.write_text('{"input": "Hello.", "model": "voice", "stream": false}')
    done = subprocess.run(
        [sys.executable, "-m", "tests.service.offline.speak", str(request), str(wav)],
        cwd=ROOT,
        env={**os.environ, "MODEL_DIR": f"bento:{tag}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert wav.stat().st_size > 24_000
