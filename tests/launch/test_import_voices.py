"""Upstream's saved voices go into the folder of the service, after all of them have been checked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from launch.import_voices import main
from models.conditioning import load_presets
from models.config import load_config
from runners.voice_store import VoiceStore
from tests.golden import golden
from tests.runners.voice_folder import same

SOURCE = golden(2).dir / "spk2info.pt"
CONSENT = ("--consent", "Ada agreed.")


@pytest.fixture
def voices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VoiceStore:
    """An empty store for a model without presets."""
    model = Path(shutil.copytree(golden(2).dir, tmp_path / "model"))
    (model / "spk2info.pt").unlink()
    monkeypatch.setenv("COSYSERVE_VOICES", str(tmp_path / "voices"))
    monkeypatch.setenv("MODEL_DIR", str(model))
    found = VoiceStore.from_environment()
    assert found is not None
    found.warm_up()
    return found


def test_upstreams_voices_are_imported(voices: VoiceStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SOURCE), *CONSENT]) == 0
    saved = load_presets(SOURCE, load_config(golden(2).dir))
    assert f"{len(saved)} voices for" in capsys.readouterr().out
    voices.warm_up()
    for name, voice in saved.items():
        found = voices.get(name)
        assert found is not None and same(found.conditioning, voice)
        assert (found.speech_tokens > 0, found.text_ids > 0) == (name == "zs_b", name == "zs_b")
        assert found.consent.statement == "Ada agreed."
    assert main([str(SOURCE), *CONSENT]) == 1
    assert "There is a voice 'spk_a' already" in capsys.readouterr().err
    assert main([str(SOURCE), "--overwrite", "--consent", "Eve agreed."]) == 0
    voices.warm_up()
    assert {voice.consent.statement for voice in voices.list()} == {"Eve agreed."}


@pytest.mark.parametrize(
    ("name", "model", "reason"),
    [("inline", (), "'inline'"), (" spk_a ", (), "twice"), ("spk_a", ("--model", str(golden(2).dir)), "preset")],
)
def test_a_voice_that_could_not_be_spoken_with_is_refused_with_all_the_others(
    voices: VoiceStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, model: tuple[str], reason: str
) -> None:
    content = torch.load(SOURCE, weights_only=True)
    torch.save({**content, name: content["spk_a"]}, tmp_path / "more.pt")
    assert main([str(tmp_path / "more.pt"), *model, *CONSENT]) == 1
    assert reason in capsys.readouterr().err
    voices.warm_up()
    assert not voices.list()


def test_a_voice_is_only_imported_with_consent(voices: VoiceStore, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(SOURCE)])
    assert main([str(SOURCE), "--consent", " "]) == 1
    assert main([str(tmp_path / "none.pt"), *CONSENT]) == 1
    assert not voices.list()
