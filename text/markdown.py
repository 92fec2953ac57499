"""Markdown to the words it shows: marks go, links keep their text, tables become clauses, code blocks are left out.

Works on the lines a user typed, before `text.clean` joins them. No pattern tries a run of one
character again from each of its places, so time stays linear.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}(?!~))[^`\n]*$")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*)$")
_RULE = re.compile(r"^ {0,3}(?:[-*_]\s*){3,}$")
_QUOTE = re.compile(r"^ {0,3}(?:>\s?)+")
_BULLET = re.compile(r"^\s{0,20}[-*+]\s+(?:\[[ xX]\]\s)?(?=\S)")
_TABLE_ROW = re.compile(r"^\s*\|(.*)\|\s*$")
_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,300})\]\([^()\s]{1,500}(?:\([^()\s]{0,100}\)[^()\s]{0,200})?(?: +\"[^\"\n]{0,200}\")?\)"
)
_REFERENCE = re.compile(r"!?\[([^\[\]\n]{1,300})\]\[([^\[\]\n]{0,100})\](?!\()")
_DEFINITION = re.compile(r"^ {0,3}\[[^\[\]\n]{1,100}\]:\s+\S+.*$")
_STRONG = re.compile(
    r"(?<![*\w\\])\*{1,3}(?=[^\s*])([^*\n]{1,500}?)(?<=[^\s*])\*{1,3}(?![*])"
    r"|(?<![^\W_])_{1,3}(?=[^\s_])([^_\n]{1,500}?)(?<=[^\s_])_{1,3}(?!\w)"
)
_BOLD = re.compile(r"(?<!\\)\*\*(?=[^\s*])([^*\n]{1,500}?)(?<=[^\s*])\*\*")
_STRUCK = re.compile(r"~~([^~\n]{1,500})~~")
_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]{1,500})(?<!`)\1(?!`)")
_ESCAPE = re.compile(r"\\([*_`#~>!|])")
# Event tags of the models are none of it, and are not taken for HTML.
_HTML = re.compile(r"</?(?!(?:strong|laughter)>)[A-Za-z][A-Za-z0-9-]{0,20}(?:\s+[\w-]{1,30}=\"[^\"<>]{0,200}\")*\s*/?>")
# Phone tags next to each other, [h][ào], are no reference link.
_PHONE = re.compile(r"[A-Z]{1,2}[0-2]?|[a-zà-ǜ]{1,4}")


def strip_markdown(text: str, *, read_code: bool = False) -> tuple[str, bool]:
    """The text without its marks, and whether a fenced code block was left out. A fence that never ends is none."""
    lines: list[str] = []
    block: list[str] = []
    fence = ""
    skipped = False
    for line in text.replace("\r\n", "\n").split("\n"):
        mark = _FENCE.match(line)
        if not fence:
            fence = mark[1] if mark else ""
            block = [line]
            lines += [] if fence else [_line(line)]
        elif mark and mark[1].startswith(fence) and not line.strip(" `~"):
            lines += ["", *(block[1:] if read_code else []), ""]
            skipped = skipped or not read_code
            fence = ""
        else:
            block.append(line)
    return "\n".join(lines + (list(map(_line, block)) if fence else [])), skipped


def _line(line: str) -> str:
    if _RULE.match(line) or _is_table_rule(line) or _DEFINITION.match(line):
        return ""
    line = _QUOTE.sub("", line)
    heading = _HEADING.match(line)
    if heading:
        line = f"\n{_without_closing_marks(heading[1])}\n"
    row = _TABLE_ROW.match(line)
    if row:
        cells = [cell.strip() for cell in row[1].split("|")]
        line = ("，" if any("\u3040" <= c <= "\u9fff" for c in line) else ", ").join(filter(None, cells)) + "\n"
    line = _BULLET.sub("\n", line)  # a sentence of its own
    line = _LINK.sub(r"\1", line)
    line = _REFERENCE.sub(_reference, line)
    line = _HTML.sub(" ", _CODE.sub(r"\2", line))
    line = _STRUCK.sub(r"\1", _BOLD.sub(r"\1", line))
    line = _STRONG.sub(lambda match: match[1] or match[2], line)
    return _ESCAPE.sub(r"\1", line)


def _is_table_rule(line: str) -> bool:
    return "|" in line and "--" in line and not line.strip().strip("|:- \t")


def _without_closing_marks(heading: str) -> str:
    """`## Title ##` is closed by its last marks; the one of "C#" is part of a word."""
    heading = heading.rstrip()
    bare = heading.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else heading


def _reference(match: re.Match[str]) -> str:
    return match[0] if _PHONE.fullmatch(match[1]) and _PHONE.fullmatch(match[2]) else match[1]
