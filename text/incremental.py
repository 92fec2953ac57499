"""Text that is still arriving: cut into pieces that can be spoken before the rest is there.

A piece ends where a sentence ends, or, by the policy "clause", where a clause of some length does, or, by the policy
"model", already where two words meet that are read alike whatever stands beside them. What a mark means often depends
on what follows ("3." may become "3.5"), so the last word of what has arrived is held back until more text, or a flush,
settles it. Words, numbers, URLs and tags are never cut: they are atoms, and cuts fall between atoms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from text.atoms import IS_WIDE, LONGEST_WORD, SPACE, atom_end, is_cut_short
from text.clean import LIST_ITEM
from text.english_words import ABBREVIATIONS, TITLES

POLICIES = ("sentence", "clause", "model")
LONGEST_PIECE = 240
"""Letters, each Chinese or Japanese one counted three times: a longer piece is cut at its last clause or gap."""
_SHORTEST_CLAUSE = 18  # the unit of LONGEST_PIECE; shorter ones sound chopped
_WIDE_WEIGHT = 3

_SENTENCE_MARKS = frozenset(".!?。！？｡؟۔।")
_CLAUSE_MARKS = frozenset(",;:，；：、—…،؛")
_CLOSING = frozenset("\"”’')）】》」』］〕)]}»")
_NUMERALS = frozenset("〇零一二三四五六七八九十百千万萬亿億兆两兩点點")

_TAG = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_MARKUP = re.compile(r"<[^<>]*>")
_LIST_ITEM_LENGTH = 4

# Words whose dot ends no sentence. A single letter is an initial.
_DOTTED = re.compile(r"[^\W\d_]|(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}|\d{1,2}")
_MORE = (
    "Dr St Mme Mlle Mgr Sra Srta Sig Dott Nr Bd Abs Str Tel Hr Fr bzw usw ca vgl evtl ggf inkl zzgl vs Nos pp Ch Sec "
    "Art no No Nr al Ph"
)
_ABBREVIATIONS = frozenset([*TITLES, *ABBREVIATIONS, *_MORE.split()])
_ONLY_BEFORE_DIGITS = frozenset(["no", "No", "Art", "Ch", "Sec", "al"])
_PLAIN = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[,;:]?")
_SIGNS = frozenset("*_`~#<>[]{}|\\$^=")  # of markup and formulas, which may reach over many words


class _Mark(IntEnum):
    NONE = 0
    CLAUSE = 1
    SENTENCE = 2
    BREAK = 3  # of a paragraph, or of an endless word: nothing that follows changes it


@dataclass(frozen=True)
class Portion:
    """`ends`: what can be spoken by itself ends with it."""

    text: str
    ends: bool


@dataclass
class _Scan:
    """What is known of the piece that is being gathered. Positions are offsets in the pending text."""

    start: int = 0
    position: int = 0
    """Everything before it is settled."""
    weight: int = 0
    has_letters: bool = False
    plain: bool = True
    """Whether the last word is read alike whatever follows, as far as that is no sign or number."""
    signs: bool = False
    mark: _Mark = _Mark.NONE
    """What the atoms so far end in."""
    word: str = ""
    """The last word, where its dot may be that of an abbreviation."""
    clause: int = 0
    gap: int = 0
    """The last places, 0 for none, where a piece that gets too long may be cut."""


@dataclass
class IncrementalText:
    """Text in, in any portions; pieces out. Joined, the pieces of `feed` and `flush` are the text that was fed.

    The pieces do not depend on the portions, but for where `flush` is called. Linear time.
    """

    policy: str = "sentence"
    _pending: str = ""
    _half: str = ""
    _scan: _Scan = field(default_factory=_Scan)

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"policy is one of {', '.join(POLICIES)}, not {self.policy!r}")

    def feed(self, text: str) -> list[str]:
        """The pieces that `text` completes."""
        return [portion.text for portion in self.portions(text)]

    def flush(self) -> list[str]:
        """The rest: nothing is waited for any more."""
        return [portion.text for portion in self.last_portions()]

    def portions(self, text: str) -> list[Portion]:
        """As `feed`. Halves of a surrogate pair that arrive apart are put together."""
        text = _join_pairs(self._half + text)
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._pending += text.removesuffix(self._half)
        return self._pieces(final=False)

    def last_portions(self) -> list[Portion]:
        """As `flush`. The last one ends."""
        self._pending += self._half
        self._half = ""
        pieces = self._pieces(final=True)
        if self._pending:
            pieces.append(Portion(self._pending, True))
        self._pending, self._scan = "", _Scan()
        return pieces

    def _pieces(self, final: bool) -> list[Portion]:
        pieces = []
        while (found := self._next_cut(final)) is not None:
            cut, ends = found
            pieces.append(Portion(self._pending[self._scan.start : cut], ends))
            weight, has_letters = (0, False) if ends else (self._scan.weight, True)
            self._scan = _Scan(start=cut, position=cut, weight=weight, has_letters=has_letters)
        done = self._scan.start
        self._pending = self._pending[done:]
        scan = self._scan
        scan.start, scan.position = 0, scan.position - done
        scan.clause, scan.gap = max(0, scan.clause - done), max(0, scan.gap - done)
        return pieces

    def _next_cut(self, final: bool) -> tuple[int, bool] | None:
        """Where the piece ends, and whether it can be spoken by itself; None: that is not settled yet."""
        text, scan = self._pending, self._scan
        while scan.position < len(text):
            end = atom_end(text, scan.position, final)
            if end is None:
                return None
            atom = text[scan.position : end]
            mark, word = _mark_of(atom, scan, text, end, final)
            if mark is None:
                return None
            verdict = self._ends_piece(atom, mark, word, end, final)
            if verdict is None:
                return None
            parted = not verdict and self.policy == "model" and self._words_part(atom, mark, end, final)
            if parted is None:
                return None
            self._take(atom, mark, word, end)
            if verdict:
                return end, True
            if parted:
                return end, scan.weight > LONGEST_PIECE
            if scan.weight > LONGEST_PIECE and (cut := self._place_to_cut()):
                return cut, True
        return None

    def _take(self, atom: str, mark: _Mark, word: str, end: int) -> None:
        text, scan = self._pending, self._scan
        wide = IS_WIDE.match(atom) is not None
        endless = scan.weight > LONGEST_WORD  # no number either
        if atom.isspace():
            if scan.has_letters and (endless or not _between_digits(text, scan.position, end)):
                scan.gap = scan.position
        elif wide and atom.isalnum() and (endless or _may_part(text, end)):
            scan.gap = end
        if mark is _Mark.CLAUSE and scan.has_letters and text[end : end + 1] not in _CLOSING:
            scan.clause = end
        scan.has_letters = scan.has_letters or _has_letters(atom)
        if not atom.isspace():
            scan.plain = wide or _is_plain(atom)
            scan.signs = scan.signs or not _SIGNS.isdisjoint(atom)
        scan.weight += len(atom) * (_WIDE_WEIGHT if wide else 1)
        scan.mark, scan.word, scan.position = mark, word, end

    def _ends_piece(self, atom: str, mark: _Mark, word: str, end: int, final: bool) -> bool | None:
        """Whether the piece ends at `end`, behind `atom`; None: it depends on text to come."""
        text = self._pending
        if mark is _Mark.BREAK:
            return True
        enough = mark is _Mark.SENTENCE or (self.policy == "clause" and mark is _Mark.CLAUSE)
        if not enough or not (self._scan.has_letters or _has_letters(atom)):
            return False
        if end == len(text):
            return False if final else None
        if not _apart(text, end):
            return False
        if mark is _Mark.CLAUSE:
            return self._scan.weight + len(atom) >= _SHORTEST_CLAUSE
        return _sentence_ends(word, text, end, final)

    def _words_part(self, atom: str, mark: _Mark, end: int, final: bool) -> bool | None:
        """Whether two words meet at `end`, behind `atom`, that may be read apart; None: it depends on text to come.

        A number or sign is read together with the words on both sides of it, and those before and after them stay.
        """
        text, scan = self._pending, self._scan
        wide = IS_WIDE.match(atom) is not None
        if scan.signs or not scan.plain or not (wide or _is_plain(atom)):
            return False
        if end == len(text):
            return False if final else None
        if wide:
            return mark is _Mark.CLAUSE and scan.has_letters and IS_WIDE.match(text, end) is not None
        space = SPACE.match(text, end)
        if space is None or "\n" in space[0]:
            return False
        start = space.end()
        if start == len(text):
            return False if final else None
        if text[start].islower():
            return True
        following = atom_end(text, start, final)
        return None if following is None else _is_plain(text[start:following])

    def _place_to_cut(self) -> int:
        """Where a piece that got too long is cut, 0 for nowhere: at a clause, unless that leaves most of it."""
        scan = self._scan
        late = scan.clause - scan.start > (scan.position - scan.start) / 2
        return scan.clause if late and scan.clause else scan.gap


def _mark_of(atom: str, scan: _Scan, text: str, end: int, final: bool) -> tuple[_Mark | None, str]:
    """What the text up to the end of `atom` ends in, and the word before it; None: it depends on text to come."""
    if atom.isspace():
        return _mark_of_space(atom, scan, text, end, final), ""
    if is_cut_short(atom, text[end : end + 1]):
        return _Mark.BREAK, ""
    bare = _TAG.sub("", atom)
    if set(bare) <= _CLOSING:  # closes what ended before it
        return scan.mark, scan.word
    letters = next((at for at in range(len(bare), 0, -1) if bare[at - 1].isalnum()), 0)
    marks = set(bare[letters:])
    if marks & _SENTENCE_MARKS:
        only_dot = marks & _SENTENCE_MARKS == {"."}
        return _Mark.SENTENCE, bare[:letters].lstrip("\"“‘'(（[{«¿¡") if only_dot else ""
    if marks & _CLAUSE_MARKS and not _between_digits(text, end - 1, end):
        return _Mark.CLAUSE, ""
    return _Mark.NONE, ""


def _mark_of_space(space: str, scan: _Scan, text: str, end: int, final: bool) -> _Mark | None:
    """A blank line, or a list item on the next line, ends what has no mark of its own."""
    if "\n" not in space or not scan.has_letters:
        return _Mark.NONE
    if space.count("\n") > 1 or LIST_ITEM.match(text, end):
        return _Mark.BREAK
    return None if not final and len(text) < end + _LIST_ITEM_LENGTH else _Mark.NONE


def _apart(text: str, end: int) -> bool:
    """Whether what comes at `end` is parted from what comes before it, so that a mark there can end something."""
    if text[end].isspace():
        return True
    if text[end] in _CLOSING or text[end] in _SENTENCE_MARKS or text[end] in _CLAUSE_MARKS:
        return False
    return IS_WIDE.match(text, end) is not None or IS_WIDE.match(text, end - 1) is not None


def _sentence_ends(word: str, text: str, end: int, final: bool) -> bool | None:
    """Whether the mark before `end` ends a sentence, as far as the word before it and what follows tell."""
    quoted = text[end - 1] in _CLOSING
    counted = word in _ONLY_BEFORE_DIGITS
    if not counted and (_DOTTED.fullmatch(word) or word in _ABBREVIATIONS):
        return False
    if not quoted and not counted:
        return True
    space = SPACE.match(text, end)
    if space and "\n" in space[0]:
        return True
    after = text[space.end() if space else end :][:1]
    if not after:
        return True if final else None
    return not (counted and after.isdigit()) and not (quoted and after.islower())


def _is_plain(atom: str) -> bool:
    """Whether it is a word, perhaps with a mark, and no number, abbreviation or initials."""
    word = atom.rstrip(",;:")
    if not _PLAIN.fullmatch(atom) or word in _ABBREVIATIONS:
        return False
    return not word.isupper() or word in ("I", "A")


def _has_letters(atom: str) -> bool:
    return any(map(str.isalnum, _MARKUP.sub("", atom)))


def _between_digits(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start].isdigit() and text[end : end + 1].isdigit()


def _may_part(text: str, end: int) -> bool:
    """Whether two letters of a script without spaces may be parted at `end`: not within a number in words."""
    before, after = text[end - 1], text[end : end + 1]
    return after.isalnum() and IS_WIDE.match(after) is not None and not {before, after} <= _NUMERALS


def _join_pairs(text: str) -> str:
    return re.sub("[\ud800-\udbff][\udc00-\udfff]", _pair, text)


def _pair(match: re.Match[str]) -> str:
    return match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
