"""Cuts text into the segments that are synthesised one after the other.

`split_paragraph` has the rules of CosyVoice's front end (pieces at sentence marks, merged to 60-80 units), plus a
bound: a piece without marks is cut at commas, then spaces, then anywhere. `split_words` serves voices that were
trained on short utterances: balanced runs of words, cut where a speaker would breathe. Nothing is lost by either.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence

CHINESE_MARKS = "。？！；：、.?!;"
ENGLISH_MARKS = ".?!;:"
_CLOSING = "\"”’')）】》」』"
_PAIRED_TAG = re.compile(r"<(strong|laughter)>.{0,400}?</\1>|\[[A-Za-z_\u00c0-\u024f-]{1,20}\]", re.S)
# Not to be cut where there is another way: a number in characters, a word in Latin letters.
_WHOLE = re.compile(r"[零幺一二两三四五六七八九十百千万亿点分之]{2,}|[0-9A-Za-z@._/'’-]{2,}")
_COMMA = re.compile(r"[，、,;；:：—]+ ?(?!\d)")
_SPACE = re.compile(r" +")
_NO_BREAK = re.compile("\u00a0+")

Length = Callable[[str], int]

# -- the rules of CosyVoice's front end ------------------------------------------------------------------------


def split_paragraph(
    text: str, *, marks: str, stop: str, length: Length, longest: int = 80, enough: int = 60, shortest: int = 20
) -> list[str]:
    """Segments of about `enough` to `longest` units; joined they are the text (plus a final `stop`).

    length: units of a string (characters for Chinese, tokens otherwise). Bound: enough + longest + shortest units.
    Equal to CosyVoice's split_paragraph for text whose pieces between marks are at most `longest` units.
    """
    if text and not ends_in(text, marks):
        text += stop
    pieces = [part for piece in _pieces(text, marks) for part in cut_long(piece, longest, length)]
    segments: list[str] = []
    current, size = "", 0
    for piece in pieces:
        joined = length(current + piece)
        if joined > longest and size > enough:
            segments.append(current)
            current, size = piece, length(piece)
        else:
            current, size = current + piece, joined
    if current and size < shortest and segments:
        segments[-1] += current
    elif current:
        segments.append(current)
    return segments


def ends_in(text: str, marks: Collection[str]) -> bool:
    """Whether a text ends in one of `marks`, perhaps with quotes that close behind it."""
    return text.rstrip(_CLOSING)[-1:] in marks


def _pieces(text: str, marks: str) -> Iterator[str]:
    """Text up to and including each run of marks with the quotes that close behind it."""
    spans = [match.span() for match in _PAIRED_TAG.finditer(text)]
    start = tag = 0
    for match in re.finditer(rf"[{re.escape(marks)}]+[{re.escape(_CLOSING)}]*", text):
        while tag < len(spans) and spans[tag][1] <= match.start():
            tag += 1
        inside_tag = tag < len(spans) and spans[tag][0] < match.start()
        if match.start() == start or inside_tag or _inside_word(text, match):
            continue
        yield text[start : match.end()]
        start = match.end()
    if start < len(text):
        yield text[start:]


def _inside_word(text: str, match: re.Match[str]) -> bool:
    """A dot or colon between letters or digits ("2.6", "10:30", "example.cn") ends nothing; "end.Start" does."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if match[0] not in (".", ":") or not (before.isascii() and after.isascii()):
        return False
    return before.isalnum() and after.isalnum() and not (before.islower() and after.isupper())


def cut_long(text: str, longest: int, length: Length) -> Iterator[str]:
    """The text in balanced parts of at most `longest` units, cut at a comma, else a space, else between two words or
    numbers, else anywhere."""
    if len(text) < 2 or length(text) <= longest:
        yield text
        return
    cut = _middle_cut(text)
    yield from cut_long(text[:cut], longest, length)
    yield from cut_long(text[cut:], longest, length)


def _middle_cut(text: str) -> int:
    middle = len(text) / 2
    tags = [match.span() for match in _PAIRED_TAG.finditer(text)]
    for pattern, at_end in ((_COMMA, True), (_SPACE, False), (_NO_BREAK, False)):
        cuts = [match.end() if at_end else match.start() for match in pattern.finditer(text)]
        cuts = [cut for cut in cuts if len(text) / 5 < cut < len(text) * 4 / 5]
        if tags:
            cuts = [cut for cut in cuts if not _is_inside(cut, tags)]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    cut = len(text) // 2
    for spans in (tags, [match.span() for match in _WHOLE.finditer(text)]):
        inside = next((span for span in spans if span[0] < cut < span[1]), None)
        if inside:  # around it, unless it is all there is
            cut = inside[0] or inside[1]
    return cut if 0 < cut < len(text) else len(text) // 2


def _is_inside(cut: int, spans: Sequence[tuple[int, int]]) -> bool:
    """spans: in order, none in another."""
    before = bisect_left(spans, (cut, 0)) - 1  # the last that starts before the cut
    return before >= 0 and cut < spans[before][1]


# -- short utterances ------------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][\"'])\s+")
# A speaker breathes before these rather than behind them.
_OPENERS = (
    "and but or because so that which who when while where if although though since until unless before after "
    "with without for from to into of in on at by than as about over under between through during then"
)
_DETERMINERS = "a an the my your his her its our their this that these those no not is are was were"
_BREATH_BEFORE = frozenset(_OPENERS.split())
_NO_BREATH_BEHIND = _BREATH_BEFORE | frozenset(_DETERMINERS.split())
_SHORT = 3  # words; utterances shorter than this were not trained
_RESERVE = 2  # words; a longer utterance is allowed where it saves a bad cut


def count_words(text: str) -> int:
    """Spoken words: "forty-two" counts as two, a literal as one."""
    return len(re.findall(r"[^\W_]+(?:['’][^\W_]+)*|[\ue000-\uf8ff]", text))


def split_words(text: str, longest: int, size: Length = count_words) -> list[str]:
    """Utterances of at most `longest` words, balanced around less, at sentence ends, clauses, small words.

    text: normalised English. Each utterance ends in a mark (a comma where the sentence goes on).
    A sentence of one or two words joins its neighbour. size: spoken words of a string.
    """
    utterances: list[str] = []
    for sentence in filter(str.strip, _SENTENCE_END.split(text)):
        utterances += _cut_sentence(sentence.split(), longest, size)
    return _join_short(utterances, longest, size)


def _cut_sentence(words: list[str], longest: int, size_of: Length) -> list[str]:
    """Least-cost cutting of one sentence: even parts, cut at the best places."""
    sizes = [max(1, size_of(word)) for word in words]
    total = sum(sizes)
    target = total / -(-total // max(1, longest - _RESERVE))
    if total <= longest - _RESERVE:
        return [_with_mark(" ".join(words), ".")]
    best = [0.0] + [float("inf")] * len(words)
    origin = [0] * (len(words) + 1)
    for end in range(1, len(words) + 1):
        size = 0
        for start in range(end - 1, -1, -1):
            size += sizes[start]
            if size > longest and start < end - 1:
                break
            cost = best[start] + (size - target) ** 2 + _cut_cost(words, end)
            cost += 50 if size < _SHORT and total > _SHORT else 0
            if cost < best[end]:
                best[end], origin[end] = cost, start
    parts, end = [], len(words)
    while end:
        parts.append(" ".join(words[origin[end] : end]))
        end = origin[end]
    parts.reverse()
    return [_with_mark(part, "," if i < len(parts) - 1 else ".") for i, part in enumerate(parts)]


def _cut_cost(words: list[str], end: int) -> float:
    if end == len(words):
        return 0.0
    if words[end - 1][-1] in ";:":
        return 4.0
    if words[end - 1][-1] == ",":
        return 8.0
    hanging = 20.0 if words[end - 1].lower() in _NO_BREATH_BEHIND else 0.0
    return hanging + (25.0 if words[end].lower() in _BREATH_BEFORE else 45.0)


def _with_mark(part: str, mark: str) -> str:
    bare = part.rstrip("\"')")
    if bare[-1:] in ",;:" and mark == ".":
        return bare.rstrip(",;:") + mark
    return part if bare[-1:] in ".,;:!?" else bare + mark


def _join_short(utterances: list[str], longest: int, size: Length) -> list[str]:
    """One- and two-word utterances join the next one where both fit, the last one the previous."""
    joined: list[str] = []
    for utterance in utterances:
        words = size(utterance)
        previous = size(joined[-1]) if joined else 0
        if joined and min(words, previous) < _SHORT and words + previous <= longest:
            joined[-1] += f" {utterance}"
        else:
            joined.append(utterance)
    return joined
