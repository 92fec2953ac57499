"""The embedded voice's front end: English to the phonemes the voice knows, in utterances it was trained on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.config import EMBEDDED, load_config
from models.errors import ModelError
from models.tokenizer import Tokenizer
from tests.text.english_readings import READINGS
from text import TextError, TextFrontend
from text.phonemes import PhonemeInventory
from text.split import count_words


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(EMBEDDED, 2)


@pytest.fixture(scope="module")
def frontend(tokenizer: Tokenizer) -> TextFrontend:
    return TextFrontend.for_model(load_config(EMBEDDED), tokenizer)


def known_symbols() -> set[str]:
    return set("".join(json.loads((EMBEDDED / "phonemes.json").read_text())["classes"])) - {"_"}


def phonemes(frontend: TextFrontend, text: str) -> str:
    return " ".join(segment.tokens_text for segment in frontend.segments(text))


def test_words_become_the_phonemes_the_voice_was_trained_on(frontend: TextFrontend) -> None:
    assert phonemes(frontend, "Good morning, how are you today?") == "ɡˈʊd mˈɔɹnɪŋ, hˌW ɑɹ ju tədˈA?"


def test_each_phoneme_is_one_token(frontend: TextFrontend, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(phonemes(frontend, "Yes."))
    assert [tokenizer.decode([i]) for i in ids] == ["j", "ˈɛ", "s", "."]


@pytest.mark.parametrize("written", [written for written, _ in READINGS])
def test_every_everyday_input_is_said_in_known_symbols(frontend: TextFrontend, written: str) -> None:
    for segment in frontend.segments(written):
        assert set(segment.tokens_text) <= known_symbols()
        assert segment.tokens_text[-1] in ".,?!"
        assert count_words(segment.text) <= 16


def test_a_question_stays_a_question_when_it_is_cut(frontend: TextFrontend) -> None:
    segments = frontend.segments(
        "Would you be so kind as to tell me how I can get from the old station to the new harbor before it closes?"
    )
    assert len(segments) == 2
    assert segments[0].tokens_text[-1] == "." and segments[-1].tokens_text[-1] == "?"


def test_short_and_bare_input_is_complete(frontend: TextFrontend) -> None:
    assert phonemes(frontend, "ok") == "ˌOkˈA."
    assert phonemes(frontend, "12") == "twˈɛlv."
    assert phonemes(frontend, "&") == "ænd."
    assert phonemes(frontend, "Version C.").endswith(".")


def test_short_sentences_share_an_utterance_that_has_one_end(frontend: TextFrontend) -> None:
    assert phonemes(frontend, "Hi! How are you?") == "hˈI, hˌW ɑɹ ju?"
    assert phonemes(frontend, "Yes. I know.") == "jˈɛs, ˌI nˈO."


def test_tags_and_control_tokens_are_not_spoken(frontend: TextFrontend) -> None:
    plain = phonemes(frontend, "Wow that's great")
    assert phonemes(frontend, "<strong>Wow</strong> [laughter] that's <|endofprompt|> great") == plain


def test_accents_do_not_matter(frontend: TextFrontend) -> None:
    assert phonemes(frontend, "Łukasz") == phonemes(frontend, "Lukasz")
    assert phonemes(frontend, "café").startswith("kæfˈA")


@pytest.mark.parametrize("text", ["你好", "Hello 世界", "привет", "こんにちは", "안녕", "مرحبا"])
def test_other_scripts_are_refused_with_a_sentence(frontend: TextFrontend, text: str) -> None:
    with pytest.raises(TextError) as caught:
        frontend.segments(text)
    assert caught.value.code == "unsupported_language" and "English" in caught.value.message


def test_a_transcript_becomes_phonemes_too(frontend: TextFrontend) -> None:
    assert frontend.prompt_text("Good morning.") == "ɡˈʊd mˈɔɹnɪŋ."
    assert frontend.prompt_text("") == ""


def test_an_endless_word_is_read_to_its_end(frontend: TextFrontend) -> None:
    assert len(frontend.segments("supercalifragilistic" * 60)) > 2
    assert phonemes(frontend, "a" * 500 + "zoo").endswith("zˈu.")


@pytest.mark.parametrize("link", ["1-", "a-", "-1", "1–", "a-a@b-b-", "1/", "a'"])
def test_an_endless_chain_is_read_in_bounded_pieces(frontend: TextFrontend, link: str) -> None:
    """The phonemizer alone takes minutes for these: its time grows with the cube of a chain's length."""
    began = time.process_time()
    segments = frontend.segments(link * 500)
    assert time.process_time() - began < 10
    assert all(len(segment.text.split()) <= 40 for segment in segments)


def test_a_short_chain_stays_a_word(frontend: TextFrontend) -> None:
    assert [segment.text for segment in frontend.segments("A state-of-the-art thing.")] == ["A state-of-the-art thing."]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.characters(max_codepoint=0x24F), max_size=120))
def test_any_latin_text_gives_known_symbols_or_a_text_error(frontend: TextFrontend, text: str) -> None:
    try:
        segments = frontend.segments(text)
    except TextError:
        return
    assert segments and all(set(segment.tokens_text) <= known_symbols() for segment in segments)


def test_sounds_a_voice_lacks_are_said_with_near_ones() -> None:
    inventory = PhonemeInventory(["_", " ", ",", ".", "k", "ɑ", "ˈɑ", "ɹ"], {"(": " ", "—": ","}, ["ɑ"])
    assert inventory.fit("(xˈa rʘ)—ˈk") == "kˈɑ ɹ ,k".replace(" ,", ",")


def test_a_folder_without_its_phoneme_table_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        PhonemeInventory.load(tmp_path)
    assert caught.value.code == "model_file_missing" and "phonemes.json" in str(caught.value)
    (tmp_path / "phonemes.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        PhonemeInventory.load(tmp_path)
    assert caught.value.code == "model_config_invalid"


HEAVY = "print([m for m in ('torch', 'onnxruntime', 'wetext', 'hibari') if m in sys.modules])"


def modules_after(statements: str) -> str:
    code = f"import sys; {statements}; {HEAVY}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_front_end_loads_nothing_heavy() -> None:
    assert modules_after("import text") == "[]"


def test_the_phonemizer_loads_without_its_voice_or_torch() -> None:
    assert modules_after("from text.phonemes import Phonemizer; Phonemizer()('hello')") == "['hibari']"
