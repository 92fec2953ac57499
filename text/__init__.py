"""From what a user typed to what the model reads: cleaning, normalising, splitting, phonemes. No torch here."""

from text.errors import TextError
from text.frontend import MAX_INPUT_CHARS, Analysis, Segment, TextFrontend, Warning
from text.options import TextOptions

__all__ = ["MAX_INPUT_CHARS", "Analysis", "Segment", "TextError", "TextFrontend", "TextOptions", "Warning"]
