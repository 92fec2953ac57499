"""Which stretch of a text is in which language: by script, by the smallest words, by characters only one language has.

A few Latin words inside another script are part of its sentence ("我们用 PyTorch 2.6 跑"); many are a stretch of
their own. What is no letter goes with the letters around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from text.errors import TextError
from text.languages import latin_language
from text.options import AUTO, LANGUAGES

# The scripts that a given language has of its own: all text in them is taken for it.
_SCRIPTS = {
    **dict.fromkeys(("zh", "yue"), frozenset({"han", "latin"})),
    "ja": frozenset({"han", "kana", "latin"}),
    "ko": frozenset({"hangul", "han", "latin"}),
    "ru": frozenset({"cyrillic", "latin"}),
    **dict.fromkeys(("en", "de", "es", "fr", "it"), frozenset({"latin"})),
}
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f\u3005\u3007"
_KANA = "\u3041-\u3096\u309d-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9d"
_LETTERS = re.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<kana>[{_KANA}]+)|(?P<hangul>[\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f]+)"
    r"|(?P<cyrillic>[\u0400-\u052f\u0300-\u036f]*[\u0400-\u052f][\u0400-\u052f\u0300-\u036f]*)"
    r"|(?P<latin>[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff]"
    r"[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u1e00-\u1eff\u0300-\u036f'’]*)"
)
_WORD = re.compile(r"[^\W\d_][a-z\u00df-\u024f'’]+")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]{2,}")
_SENTENCE_END = re.compile(r"[。！？\n]|[.!?][\"'”’)）】》」』]*(?=\s+[^\s\da-z]|\s*$)")
_CLAUSE_END = re.compile(r"[，、,；;：:。！？!?]")
_SENTENCE_GAP = re.compile(r"[^。！？.!?]*(?:[。！？]|[.!?][\"'”’)）】》」』]*\s)\s*")
_CUT = re.compile(r".*[\s，、,；;：。！？!?)）】》」』”]", re.DOTALL)
_CANTONESE = frozenset("佢哋喺咗嘅冇嗰啲嚟嘢噉咩嘞喎啱攞瞓")
_LETTERS_PER_WORD = {"latin": 5.0, "cyrillic": 5.0, "hangul": 2.0, "kana": 2.0, "han": 1.0}
_FEW_WORDS = 3  # fewer Latin words inside another script's sentence belong to that sentence
_TIGHT = ("han", "kana")


@dataclass(frozen=True)
class Span:
    """A stretch of text in one language: a value of LANGUAGES, or another code for one without rules."""

    text: str
    language: str


@dataclass(frozen=True)
class _Run:
    """Letters of one script; `language` "" is not decided yet."""

    start: int
    end: int
    script: str
    sentence: int
    is_word: bool  # and no abbreviation, variable or unit
    language: str = ""


def find_spans(text: str, language: str = AUTO) -> list[Span]:
    """The text in stretches of one language; joined they are the text. Raises TextError unsupported_language."""
    runs = list(_runs(text))
    _refuse_other_letters(text, runs)
    if not runs:
        return [Span(text, _of_signs(text, language))] if text else []
    runs = _decided(text, runs, language)
    if language == AUTO:
        runs = _joined_with_neighbours(runs)
    return list(_spans(text, runs))


def main_language(spans: Sequence[Span]) -> str:
    """That of most letters; one without rules counts as English."""
    letters: dict[str, int] = {}
    for span in spans:
        letters[span.language] = letters.get(span.language, 0) + sum(map(str.isalpha, span.text))
    language = max(letters, key=lambda language: letters[language], default="en")
    return language if language in LANGUAGES else "en"


def _runs(text: str) -> Iterator[_Run]:
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    sentence = 0
    for match in _LETTERS.finditer(text):
        while sentence < len(ends) and ends[sentence] <= match.start():
            sentence += 1
        is_word = match["latin"] is not None and _WORD.fullmatch(match[0]) is not None
        is_word = is_word and not text[match.start() - 1 : match.start()].isdigit()
        yield _Run(match.start(), match.end(), str(match.lastgroup), sentence, is_word)


def _refuse_other_letters(text: str, runs: list[_Run]) -> None:
    """Greek letters are signs of formulas, but a Greek word is none."""
    start = 0
    for end, following in [*((run.start, run.end) for run in runs), (len(text), len(text))]:
        gap = text[start:end]
        greek = _GREEK.search(gap)
        foreign = greek[0][0] if greek else next(filter(_is_foreign, gap), None)
        if foreign is not None:
            name = unicodedata.name(foreign, "a letter without name").lower()
            raise TextError(
                "unsupported_language",
                f"The input holds “{foreign}” ({name}); languages that are spoken: {', '.join(LANGUAGES)}.",
            )
        start = following


def _is_foreign(character: str) -> bool:
    category = unicodedata.category(character)
    return category in ("Lu", "Ll", "Lo") and not (
        character in "ªºµ" or unicodedata.name(character, "").startswith("GREEK")
    )


def _of_signs(text: str, language: str) -> str:
    if language != AUTO:
        return language
    return "zh" if re.search(r"[，。！？；、：￥]", text) else "en"


# -- deciding ------------------------------------------------------------------------------------------------------


def _decided(text: str, runs: list[_Run], language: str) -> list[_Run]:
    own = _SCRIPTS.get(language, frozenset())
    open_runs = [run for run in runs if run.script not in own]
    latin = _latin_languages(text, [run for run in open_runs if run.script == "latin"])
    tight = _chinese_or_japanese(text, [run for run in open_runs if run.script in _TIGHT])
    fixed = {"hangul": "ko", "cyrillic": "ru"}
    decided = []
    for run in runs:
        if run.script in own:
            decided.append(replace(run, language=language))
        elif run.script == "latin":
            decided.append(replace(run, language=latin[run.sentence]))
        else:
            decided.append(replace(run, language=fixed.get(run.script) or tight[run.start]))
    return decided


def _latin_languages(text: str, runs: list[_Run]) -> dict[int, str]:
    """Of each sentence: its own small words decide, else those of the whole text, else it is English."""
    words: dict[int, list[str]] = {}
    for run in runs:
        words.setdefault(run.sentence, []).append(text[run.start : run.end])
    whole = latin_language([word for sentence in words.values() for word in sentence]) or "en"
    return {sentence: latin_language(of_sentence) or whole for sentence, of_sentence in words.items()}


def _chinese_or_japanese(text: str, runs: list[_Run]) -> dict[int, str]:
    """Of each run by its start. Clause by clause: kana is Japanese, a simplified character Chinese."""
    letters = "".join(text[run.start : run.end] for run in runs)
    chinese = "yue" if sum(character in _CANTONESE for character in letters) > 1 else "zh"
    whole = _of_clause(letters, chinese) or chinese
    languages: dict[int, str] = {}
    clause: list[_Run] = []
    for i, run in enumerate(runs):
        clause.append(run)
        if i + 1 < len(runs) and not _CLAUSE_END.search(text, run.end, runs[i + 1].start):
            continue
        found = _of_clause("".join(text[member.start : member.end] for member in clause), chinese) or whole
        languages.update((member.start, found) for member in clause)
        clause = []
    return languages


def _of_clause(letters: str, chinese: str) -> str | None:
    """None: nothing in it tells, so it is what the whole text is."""
    kana = len(re.findall(f"[{_KANA}]", letters))
    only_chinese = any(not _encodes(character, "shift_jis") for character in letters)
    if kana:
        return chinese if only_chinese and kana * 2 <= len(letters) - kana else "ja"
    if only_chinese:
        return chinese
    only_japanese = any(not (_encodes(character, "gb2312") or _encodes(character, "big5")) for character in letters)
    return "ja" if only_japanese else None


def _encodes(character: str, codec: str) -> bool:
    """National character sets tell which characters a language writes with."""
    try:
        character.encode(codec)
    except UnicodeEncodeError:
        return False
    return True


# -- joining -------------------------------------------------------------------------------------------------------


def _joined_with_neighbours(runs: list[_Run]) -> list[_Run]:
    """A few Latin words take the language of the sentence around them, where it is mostly in another script."""
    latin, other = _weights(runs)
    joined: list[_Run] = []
    start = 0
    while start < len(runs):
        end = start + 1
        if runs[start].script == "latin":
            while end < len(runs) and runs[end].script == "latin" and runs[end].sentence == runs[start].sentence:
                end += 1
            sentence = runs[start].sentence
            few = sum(run.is_word for run in runs[start:end]) < _FEW_WORDS and latin[sentence] < 1.5 * other[sentence]
            before = joined[-1] if joined and joined[-1].sentence == sentence else None
            after = runs[end] if end < len(runs) and runs[end].sentence == sentence else None
            host = before or after
            if few and host is not None:
                joined += [replace(run, language=host.language) for run in runs[start:end]]
                start = end
                continue
        joined += runs[start:end]
        start = end
    return joined


def _weights(runs: list[_Run]) -> tuple[dict[int, float], dict[int, float]]:
    """About how many words each sentence has in Latin script, and in others."""
    latin: dict[int, float] = {}
    other: dict[int, float] = {}
    for run in runs:
        words = (run.end - run.start) / _LETTERS_PER_WORD[run.script]
        for weights, mine in ((latin, run.script == "latin"), (other, run.script != "latin")):
            weights[run.sentence] = weights.get(run.sentence, 0.0) + (words if mine else 0.0)
    return latin, other


def _spans(text: str, runs: list[_Run]) -> Iterator[Span]:
    start = 0
    for run, following in pairwise(runs):
        if run.language == following.language:
            continue
        cut = run.end + _gap_cut(text[run.end : following.start])
        yield Span(text[start:cut], run.language)
        start = cut
    yield Span(text[start:], runs[-1].language)


def _gap_cut(gap: str) -> int:
    """Behind the last space or mark of what stands between two languages; a lone number goes with what follows."""
    match = _SENTENCE_GAP.match(gap) or _CUT.match(gap)
    if match:
        return match.end()
    return 0 if gap and (gap[-1].isdigit() or gap[-1] in "“‘「『（(《【") else len(gap)
