"""What the three kinds of models can be told, from their own tables."""

from __future__ import annotations

import json

from models.config import EMBEDDED
from models.tokenizer import Tokenizer
from tests.golden import golden
from text.pronunciation import Capabilities

_CLASSES = json.loads((EMBEDDED / "phonemes.json").read_text(encoding="utf-8"))["classes"]


def tokenizer(version: int) -> Tokenizer:
    return Tokenizer.load(golden(version).dir, version)


WORDS = Capabilities()
PHONES = Capabilities(phones=frozenset(token for token in tokenizer(3).special_tokens if token.startswith("[")))
PHONEMES = Capabilities(phonemes=frozenset("".join(_CLASSES)) - {"_"})
