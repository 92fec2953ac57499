"""Word error rate by an offline recogniser: how many of the words of a text are heard in its speech.

Both sides are normalised alike (numbers as words, contractions apart, no case, no punctuation), so that only the
speech is judged. The recogniser is moonshine's English tiny model, which comes inside its package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from text.clean import clean
from text.english import read_english

_CONTRACTIONS = (
    *((r"\bcan't", "cannot"), (r"\bcan not", "cannot"), (r"\bwon't", "will not"), (r"\blet's", "let us")),
    *((r"\b(it|that|there|what|here|he|she|who|where)'s", r"\1 is"), (r"\bo'clock", "oclock")),
    *((r"\balright", "all right"), (r"\bokay", "ok"), ("colour", "color"), ("favourite", "favorite")),
)
_SUFFIXES = (("n't", " not"), ("'re", " are"), ("'ve", " have"), ("'ll", " will"), ("'m", " am"), ("'d", " would"))


@dataclass(frozen=True)
class WordErrors:
    """Errors and words of one sentence, or the sums over many."""

    errors: int
    words: int

    @property
    def rate(self) -> float:
        return self.errors / max(1, self.words)

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(self.errors + other.errors, self.words + other.words)


def words_of(text: str) -> list[str]:
    """The spoken words of a text in one spelling."""
    text = read_english(clean(text)).lower().replace("-", " ")
    for short, full in (*_CONTRACTIONS, *_SUFFIXES):
        text = re.sub(rf"{short}\b", full, text)
    return re.findall(r"[^\W_]+", text.replace("'s", "s").replace("'", ""))


def word_errors(said: str, heard: str) -> WordErrors:
    """Least substitutions, insertions and deletions that turn `said` into `heard`, over the words of `said`."""
    reference, hypothesis = words_of(said), words_of(heard)
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return WordErrors(row[-1], len(reference))


def total(errors: Iterable[WordErrors]) -> WordErrors:
    """The sum, whose rate is the word error rate of all sentences together."""
    return sum(errors, WordErrors(0, 0))


def transcribe(samples: np.ndarray, rate: int) -> str:
    """What the recogniser hears in `samples: [L] float32` at `rate` Hz."""
    padding = np.zeros(rate // 4, np.float32)  # speech that starts at sample 0 loses its first sound otherwise
    padded = np.concatenate([padding, np.asarray(samples, np.float32), padding])
    lines = _recogniser().transcribe_without_streaming(padded.tolist(), rate).lines
    return " ".join(line.text for line in lines)


@lru_cache(maxsize=1)
def _recogniser() -> Any:
    from moonshine_voice.moonshine_api import ModelArch
    from moonshine_voice.transcriber import Transcriber
    from moonshine_voice.utils import get_model_path

    return Transcriber(str(get_model_path("tiny-en")), ModelArch.TINY)
