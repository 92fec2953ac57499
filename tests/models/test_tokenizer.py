"""Text becomes the same ids as with the genuine tokenizer."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from models.errors import ModelError
from models.tokenizer import Tokenizer
from tests.golden import golden

VERSIONS = [2, 3]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text", ["tts", "prompt_text", "instruct", "cross_lingual"])
def test_golden_texts_have_golden_ids(version: int, text: str) -> None:
    reference = golden(version)
    tokenizer = Tokenizer.load(reference.dir, version)
    assert tokenizer.encode(reference.meta["texts"][text]) == reference.array(f"tok.{text}").tolist()


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_and_the_end_of_prompt_id_come_from_the_folder(version: int) -> None:
    reference = golden(version)
    tokenizer = Tokenizer.load(reference.dir, version)
    assert len(tokenizer) == reference.meta["llm"]["n_tokenizer"]
    assert tokenizer.end_of_prompt_id == reference.meta["llm"]["eop_id"]


@pytest.mark.parametrize(
    ("version", "count", "digest"),
    [
        (2, 20, "15f0a393d766ab33"),
        (3, 281, "79f92861bb6b4ae9"),
    ],
)
def test_special_tokens_are_those_of_the_genuine_tokenizer_in_order(version: int, count: int, digest: str) -> None:
    tokens = Tokenizer.load(golden(version).dir, version).special_tokens
    assert len(tokens) == count
    assert hashlib.sha256(" ".join(tokens).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("version", VERSIONS)
def test_every_special_token_is_one_id_of_consecutive_ids(version: int) -> None:
    tokenizer = Tokenizer.load(golden(version).dir, version)
    ids = tokenizer.encode("".join(tokenizer.special_tokens))
    assert ids == list(range(ids[0], ids[0] + len(tokenizer.special_tokens)))
    assert ids[-1] + 1 == len(tokenizer)


@pytest.mark.parametrize("text", ["naïve café", "it's 2048!", "你好，世界。", "  two  spaces\n\n", "🙂", "e\u0301"])
def test_any_text_survives_the_round_trip(text: str) -> None:
    tokenizer = Tokenizer.load(golden(2).dir, 2)
    composed = text.replace("e\u0301", "é")  # Qwen2 composes characters (NFC)
    assert tokenizer.decode(tokenizer.encode(text)) == composed


def test_empty_text_has_no_ids() -> None:
    assert Tokenizer.load(golden(2).dir, 2).encode("") == []


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_missing_tokenizer_file_is_named(tmp_path, name: str) -> None:
    shutil.copytree(golden(2).dir / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    (tmp_path / "CosyVoice-BlankEN" / name).unlink()
    with pytest.raises(ModelError, match=name) as caught:
        Tokenizer.load(tmp_path, 2)
    assert caught.value.code == "model_file_missing"


def test_a_damaged_vocabulary_is_one_clear_error(tmp_path) -> None:
    shutil.copytree(golden(2).dir / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    (tmp_path / "CosyVoice-BlankEN" / "vocab.json").write_text("{")
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(tmp_path, 2)
    assert caught.value.code == "model_config_invalid"
