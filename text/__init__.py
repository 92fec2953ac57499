"""From what a user typed to what the model reads: cleaning, normalising, splitting, phonemes. No torch here."""

from text.errors import TextError
from text.frontend import MAX_INPUT_CHARS, Segment, TextFrontend

__all__ = ["MAX_INPUT_CHARS", "Segment", "TextError", "TextFrontend"]
