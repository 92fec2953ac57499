"""WeText's grammars of Chinese and Japanese, which come inside its package, one clause at a time.

A clause that a grammar fails on is left as it is written.
"""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from typing import Any

_log = logging.getLogger(__name__)
_CLAUSE = re.compile(r"[^，。！？；、\n]{1,200}[，。！？；、\n]*|[，。！？；、\n]+")
_WRITTEN = re.compile(r"[0-9%+=×÷<>≤≥±°$€£¥℃]")
_LOCK = threading.Lock()


def read(text: str, language: str) -> str:
    """Digits, dates, units and signs of `text` in the characters of `language`, "zh" or "ja". Thread-safe."""
    return "".join(_read_clause(match[0], language) for match in _CLAUSE.finditer(text))


@lru_cache(maxsize=512)  # a clause takes about a millisecond, and dates and prices come again
def _read_clause(clause: str, language: str) -> str:
    if not _WRITTEN.search(clause):
        return clause
    try:
        with _LOCK:
            return str(_grammar(language).normalize(clause)).replace('\\"', '"')
    except Exception:  # a grammar without a path for this input; the text is spoken as it stands
        _log.warning("a clause of %d characters could not be normalised", len(clause))
        return clause


@lru_cache(maxsize=2)
def _grammar(language: str) -> Any:
    from wetext import Normalizer  # slow to import, so only when it is needed

    return Normalizer(lang=language, operator="tn", remove_erhua=False)
