"""The tiny language models of the golden sets, loaded once, and their standard inputs."""

from __future__ import annotations

import functools

from models.config import load_config
from models.speech_lm import SpeechLM
from tests.golden import golden


@functools.cache
def load(version: int) -> SpeechLM:
    return SpeechLM.load(load_config(golden(version).dir))


def text_ids(version: int) -> list[int]:
    """The zero-shot case: the prompt's transcript, then the text."""
    reference = golden(version)
    return [*reference.array("zs.prompt_text")[0].tolist(), *reference.array("zs.text")[0].tolist()]


def prompt_speech(version: int) -> list[int]:
    return golden(version).array("zs.llm_prompt_speech_token")[0].tolist()
