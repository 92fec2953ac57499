"""The one exception of the text front end."""

from __future__ import annotations


class TextError(Exception):
    """Text that cannot be spoken; `code` is stable, `message` is a sentence for the person who sent it.

    Codes: input_empty, no_speakable_text, input_too_long, input_not_utf8, unsupported_language, invalid_value,
    unsupported_parameter; of markup and pronunciations, those that their modules name.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
