"""Weights come from both hubs whole and verified, an interrupted pull continues, and nothing half done is a model."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models import pull as pulling
from models.config import EMBEDDED, STAGING, check_files, load_config, required_files
from models.errors import ModelError
from models.hub import Hub, HuggingFace, ModelScope, open_hub, repository
from models.manifest import MANIFEST_FILE, read_manifest, verify
from models.pull import pull
from tests.models.fake_hub import COMMIT, REPO, FakeHub, contents_of, serve

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 2**20
LONG = 24 * MEGABYTE  # long enough to be cut: huggingface_hub writes to the disk every 10 MiB
STRANGERS = ("CosyVoice-BlankEN/model.safetensors", "flow.decoder.estimator.fp32.onnx", "README.md", "llm.rl.pt")


@pytest.fixture(params=["huggingface", "modelscope"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Either hub; what its client keeps of its own goes below tmp_path."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "MODELSCOPE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MODELSCOPE_DOWNLOAD_INTRA_CLOUD", "false")
    return request.param


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A hub that has the embedded voice, and beside it what repositories of weights also hold."""
    strange = dict.fromkeys(STRANGERS, b"not wanted " * 20_000)
    with serve(FakeHub(contents_of(EMBEDDED) | strange)) as running:
        yield running


def client(source: str, hub: FakeHub) -> Hub:
    return (HuggingFace if source == "huggingface" else ModelScope)(hub.url)


def code_of(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ModelError) as caught:
        call()
    assert "\n" not in caught.value.message
    return caught.value.code, caught.value.message


def is_no_model(root: Path) -> bool:
    with pytest.raises(ModelError, match=r"has not finished|not a folder"):
        load_config(root)
    return True


def test_the_whole_model_and_nothing_else_is_pulled(source: str, hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "deep" / "model"
    lines: list[str] = []
    manifest = pull(client(source, hub), REPO, root, name="my-voice", report=lines.append)

    pulled = contents_of(root)
    assert pulled.pop(pulling.LOCK) == b""
    held = json.loads(pulled.pop(MANIFEST_FILE))
    expected = {name: content for name, content in contents_of(EMBEDDED).items() if name != "README.md"}
    expected.pop("CosyVoice-BlankEN/generation_config.json")
    expected.pop("CosyVoice-BlankEN/model.safetensors", None)
    assert pulled == expected
    assert not hub.asked() & set(STRANGERS)
    assert (held["source"], held["repo"]) == (source, REPO)
    assert held["revision"] == (COMMIT if source == "huggingface" else "master")
    assert set(held["files"]) == set(expected)
    assert manifest == read_manifest(root)
    verify(root, manifest)
    check_files(load_config(root))
    assert load_config(root).name == "my-voice"
    assert "13 of 13 files" in lines[0]


def test_a_second_pull_transfers_nothing(source: str, hub: FakeHub, tmp_path: Path) -> None:
    first = pull(client(source, hub), REPO, tmp_path / "model")
    hub.served.clear()
    assert pull(client(source, hub), REPO, tmp_path / "model") == first
    assert not hub.served


def test_every_file_is_read_once(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    opened = Path.open

    def counted(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "rb":
            read.append(path.name)
        return opened(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", counted)
    names = [Path(name).name for name in pull(HuggingFace(hub.url), REPO, tmp_path / "model").files]
    assert sorted(read) == sorted(names)  # as they come
    read.clear()
    pull(HuggingFace(hub.url), REPO, tmp_path / "model")
    assert sorted(read) == sorted(names)  # as they are verified


def test_a_damaged_file_is_brought_again_alone(source: str, hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "model"
    manifest = pull(client(source, hub), REPO, root)
    hub.served.clear()
    flip(root / "hift.pt")
    (root / "CosyVoice-BlankEN" / "vocab.json").unlink()
    pull(client(source, hub), REPO, root)
    assert hub.asked() == {"hift.pt", "CosyVoice-BlankEN/vocab.json"}
    verify(root, manifest)


def test_a_connection_that_breaks_is_continued_where_it_broke(source: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.files["llm.pt"] = os.urandom(LONG)
    hub.cut_once["llm.pt"] = 15 * MEGABYTE
    pull(client(source, hub), REPO, tmp_path / "model")
    first, second = hub.sent("llm.pt")
    assert first == (0, 15 * MEGABYTE)
    assert second[0] >= 10 * MEGABYTE
    assert sum(second) == LONG
    assert (tmp_path / "model" / "llm.pt").read_bytes() == hub.files["llm.pt"]


def test_more_than_the_whole_file_is_not_continued(hub: FakeHub, tmp_path: Path) -> None:
    part = tmp_path / "model" / STAGING / f"llm.pt.{COMMIT}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\0" * (len(hub.files["llm.pt"]) + 1))
    pull(HuggingFace(hub.url), REPO, tmp_path / "model")
    assert hub.sent("llm.pt") == [(0, len(hub.files["llm.pt"]))]
    assert (tmp_path / "model" / "llm.pt").read_bytes() == hub.files["llm.pt"]


def test_a_pull_that_was_killed_continues(source: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.files["llm.pt"] = os.urandom(LONG)
    hub.stall_at["llm.pt"] = 15 * MEGABYTE
    root = tmp_path / "model"
    process = subprocess.Popen(
        command(source, "pull", REPO, "--to", str(root)), cwd=ROOT, env=environment(hub), stderr=subprocess.DEVNULL
    )
    assert hub.stalled.wait(60), process.poll()
    until_on_disk(root / STAGING, 10 * MEGABYTE)
    process.kill()
    process.wait()
    hub.released.set()
    hub.stall_at.clear()
    before = hub.asked()
    hub.served.clear()
    assert is_no_model(root)

    pull(client(source, hub), REPO, root)
    ((first, count),) = hub.sent("llm.pt")
    assert first >= 10 * MEGABYTE
    assert first + count == LONG
    assert hub.asked() & before == {"llm.pt"}  # what had come whole did not come again
    assert (root / "llm.pt").read_bytes() == hub.files["llm.pt"]
    assert not (root / STAGING).exists()


@pytest.mark.parametrize("name", ["flow.pt", "CosyVoice-BlankEN/merges.txt"])  # one in LFS, one in git
def test_a_file_with_a_wrong_checksum_is_refused(
    source: str, name: str, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "modelscope":  # the client tries again after 1, 2, 4 s
        monkeypatch.setattr("modelscope_hub._download.DOWNLOAD_INTEGRITY_RETRY_BACKOFF", 0.01)
    hub.wrong = {name}
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "checksum_mismatch"
    assert Path(name).name in message
    assert not (tmp_path / "model" / name).exists()
    assert is_no_model(tmp_path / "model")
    hub.wrong = set()
    pull(client(source, hub), REPO, tmp_path / "model")
    check_files(load_config(tmp_path / "model"))


@pytest.mark.parametrize(("repo", "revision"), [("nobody/nothing", None), (REPO, "no-such-branch")])
def test_what_the_hub_does_not_have_is_named(
    source: str, repo: str, revision: str | None, hub: FakeHub, tmp_path: Path
) -> None:
    code, message = code_of(lambda: pull(client(source, hub), repo, tmp_path / "model", revision=revision))
    assert code == "repository_not_found"
    assert repo in message
    assert (revision or "") in message
    assert not (tmp_path / "model").exists()


def test_a_gated_repository_says_where_to_ask(source: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.gated = True
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "hub_refused"
    assert hub.url in message
    assert "TOKEN" in message


def test_a_hub_that_is_down_is_named(source: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.down = True
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "hub_refused"
    assert "503" in message


def test_no_network_is_one_sentence(source: str, tmp_path: Path) -> None:
    with serve(FakeHub({})) as gone:
        pass
    code, message = code_of(lambda: pull(client(source, gone), REPO, tmp_path / "model"))
    assert code == "hub_unreachable"
    assert gone.url in message


def test_a_repository_of_something_else_is_no_model(source: str, hub: FakeHub, tmp_path: Path) -> None:
    yaml = hub.files.pop("cosyvoice2.yaml")
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "model_unrecognised"
    assert REPO in message
    hub.files["cosyvoice.yaml"] = yaml
    assert "CosyVoice 1 is not supported" in code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))[1]
    hub.files["cosyvoice3.yaml"] = yaml
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "model_file_missing"
    assert "speech_tokenizer_v3.onnx" in message
    assert not hub.served


def test_a_full_disk_is_named_before_anything_comes(
    source: str, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda folder: SimpleNamespace(free=70 * MEGABYTE))
    code, message = code_of(lambda: pull(client(source, hub), REPO, tmp_path / "model"))
    assert code == "target_not_usable"
    assert "70 MB free" in message
    assert not hub.served
    assert not (tmp_path / "model" / STAGING).exists()


def test_a_disk_that_fills_on_the_way_is_named(hub: FakeHub, tmp_path: Path) -> None:
    """With a limit on the size of files: the same error path as a full disk, without filling one."""
    hub.files["llm.pt"] = os.urandom(LONG)
    limited = ["bash", "-c", f'ulimit -f {12 * 1024}; exec "$@"', "--"]
    done = run(hub, "huggingface", "pull", REPO, "--to", str(tmp_path / "model"), prefix=limited)
    assert done.returncode == 1
    assert "File too large" in last_line(done.stderr)
    assert is_no_model(tmp_path / "model")


def test_a_folder_with_another_model_in_it_is_left_alone(source: str, hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "model"
    shutil.copytree(EMBEDDED, root)
    before = contents_of(root)
    assert code_of(lambda: pull(client(source, hub), REPO, root))[0] == "target_not_usable"
    assert contents_of(root) == before


def test_another_revision_does_not_go_over_the_first(source: str, hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "model"
    pull(client(source, hub), REPO, root)
    before = contents_of(root)
    held = json.loads(before[MANIFEST_FILE])
    hub.files["flow.pt"] += b"trained on"  # the branch has moved
    (root / MANIFEST_FILE).write_text(json.dumps(held | ({"revision": "older"} if source == "huggingface" else {})))
    code, message = code_of(lambda: pull(client(source, hub), REPO, root))
    assert code == "target_not_usable"
    assert "--to" in message
    assert contents_of(root)["flow.pt"] == before["flow.pt"]


def test_short_names_know_their_repositories() -> None:
    assert repository("cosyvoice2-0.5b", "huggingface") == ("CosyVoice2-0.5B", "FunAudioLLM/CosyVoice2-0.5B")
    assert repository("CosyVoice2-0.5B", "modelscope") == ("CosyVoice2-0.5B", "iic/CosyVoice2-0.5B")
    assert repository("Fun-CosyVoice3-0.5B", "modelscope") == ("Fun-CosyVoice3-0.5B", REPO)
    assert repository("somebody/voice", "huggingface") == ("voice", "somebody/voice")


@pytest.mark.parametrize("name", ["CosyVoice9", "", "a/b/c", "../..", "https://example.org/a/b"])
def test_a_name_that_is_none_lists_those_that_are(name: str) -> None:
    code, message = code_of(lambda: repository(name, "huggingface"))
    assert code == "repository_not_found"
    assert "Fun-CosyVoice3-0.5B" in message


def test_a_client_library_that_is_not_installed_is_named(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"huggingface": "huggingface_hub", "modelscope": "modelscope_hub"}[source]
    monkeypatch.setitem(sys.modules, module, None)
    code, message = code_of(lambda: open_hub(source))
    assert code == "hub_client_missing"
    assert 'pip install ".[hub]"' in message


# --- the command


def test_the_command_pulls_and_says_how_to_serve(source: str, hub: FakeHub, tmp_path: Path) -> None:
    root = tmp_path / "model"
    done = run(hub, source, "pull", "Fun-CosyVoice3-0.5B", "--to", str(root))
    assert done.returncode == 0, done.stderr
    assert f"make serve MODEL_DIR={root}" in done.stdout
    assert "llm.pt, 7 MB" in done.stdout
    assert load_config(root).name == "Fun-CosyVoice3-0.5B"
    assert set(required_files(2)) <= set(contents_of(root))


def test_a_terminal_sees_a_progress_bar(source: str, hub: FakeHub, tmp_path: Path) -> None:
    master, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))  # rows, columns
    arguments = command(source, "pull", REPO, "--to", str(tmp_path / "model"))
    with subprocess.Popen(
        arguments, cwd=ROOT, env=environment(hub), stdout=subprocess.DEVNULL, stderr=terminal
    ) as process:
        os.close(terminal)
        seen = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := os.read(master, 4096):
                seen += part
    os.close(master)
    assert process.returncode == 0, seen
    assert re.search(rb"llm\.pt: +\d+%\|", seen), seen


@pytest.mark.parametrize(
    ("model", "named"),
    [("CosyVoice9", "no model that is known"), ("nobody/nothing", "has no nobody/nothing"), (REPO, "Not a directory")],
)
def test_the_command_fails_with_one_sentence(source: str, model: str, named: str, hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run(hub, source, "pull", model, "--to", str(tmp_path / "file" / "model"))
    assert done.returncode == 1
    assert last_line(done.stderr).startswith("error: ")
    assert named in last_line(done.stderr)
    assert "Traceback" not in done.stderr


def test_offline_by_choice_is_one_sentence(hub: FakeHub, tmp_path: Path) -> None:
    done = run(hub, "huggingface", "pull", REPO, "--to", str(tmp_path / "model"), HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert "HF_HUB_OFFLINE" in last_line(done.stderr)
    assert not hub.served


def command(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "models", *arguments, "--source", source]


def environment(hub: FakeHub, **changes: str) -> dict[str, str]:
    return {**os.environ, "HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": hub.url, **changes}


def run(
    hub: FakeHub, source: str, *arguments: str, prefix: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, *command(source, *arguments)],
        cwd=ROOT,
        env=environment(hub, **env),
        capture_output=True,
        text=True,
        check=False,
    )


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def flip(path: Path) -> None:
    """Change one bit in the middle: the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def until_on_disk(folder: Path, size: int) -> None:
    limit = time.monotonic() + 30
    while max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0) < size:
        assert time.monotonic() < limit, "the bytes did not get to the disk"
        time.sleep(0.02)
