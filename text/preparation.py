"""What happens to a raw text before anything in it is read: Markdown, emoji, cleaning, pronunciations."""

from __future__ import annotations

from collections.abc import Sequence

from text.clean import clean, without_control_tokens
from text.errors import TextError
from text.literals import Literal
from text.markdown import strip_markdown
from text.normalise import Warning
from text.options import AUTO, TextOptions
from text.pronunciation import Capabilities, apply
from text.spans import find_spans, main_language

MAX_INPUT_CHARS = 20_000


def prepare(
    text: str, options: TextOptions, literals: Sequence[Literal], capabilities: Capabilities
) -> tuple[str, tuple[Literal, ...], list[Warning]]:
    """The cleaned text, the literals it refers to, and what was left out.

    Raises TextError: input_empty, input_too_long, input_not_utf8, and what pronunciations raise.
    """
    check(text)
    warnings: list[Warning] = []
    if "<|" in text and "|>" in text:
        warnings.append(Warning("control_tokens_removed", "Control tokens of the model were taken out of the text."))
    if options.markdown == "strip":
        text, skipped = strip_markdown(text, read_code=options.code == "read")
        if skipped:
            warnings.append(Warning("code_skipped", "A code block was left out; option code: read has it spoken."))
    if options.emoji == "name":
        text = _name_emoji(text, _language_of_names(text, options, len(literals)))
        _check_length(text)
    text = clean(text, len(literals))
    if not options.pronunciations:
        return text, tuple(literals), warnings
    text, used = apply(text, options.pronunciations, capabilities, literals)
    _check_length(text)
    return without_control_tokens(text), used, warnings


def check(text: str) -> None:
    """Raises TextError input_empty or input_too_long."""
    _check_length(text)
    if not text.strip():
        raise TextError("input_empty", "The input is empty.")


def _check_length(text: str) -> None:
    """Of a text as it came, and again where words took the place of shorter ones."""
    if len(text) > MAX_INPUT_CHARS:
        raise TextError(
            "input_too_long", f"The input has {len(text):,} characters; at most {MAX_INPUT_CHARS:,} are spoken at once."
        )


def _language_of_names(text: str, options: TextOptions, literals: int) -> str:
    if options.language != AUTO:
        return options.language
    return main_language(find_spans(clean(text, literals)))


def _name_emoji(text: str, language: str) -> str:
    import emoji  # loads its names, so only when they are wanted

    language = {"yue": "zh"}.get(language, language)
    emoji.config.load_language(language)
    mark = "、" if language == "ja" else "，" if language == "zh" else ", "

    def name(_: str, data: dict[str, str]) -> str:
        return mark + (data.get(language) or data["en"]).strip(":").replace("_", " ") + mark

    return emoji.replace_emoji(text, replace=name)
