"""Multipart forms of a few fields and a file or two, read in memory, within limits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.arrival import parsed, read_bytes
from api.errors import ApiError

MAX_FIELD_BYTES = 64 * 1024
"""Of one field; the file may be as large as a body."""
MAX_PARTS = 32


@dataclass
class Form:
    """`fields` and `files` by name."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


async def read_form(
    request: Request, file_name: str, field_names: Collection[str], other_files: Collection[str] = ()
) -> Form:
    """The body as a form whose file part is called `file_name`; those of `other_files` may stand beside it.

    Raises ApiError: invalid_form, input_not_utf8, unknown_parameter, invalid_value (a part given twice), invalid_type
    (a field sent as a file or the reverse), and those of `read_bytes`.
    """
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise ApiError(400, "invalid_form", "The body must be multipart/form-data.")
    file_names = (file_name, *other_files)
    read = partial(_read, boundary=options[b"boundary"], file_names=file_names, field_names=field_names)
    return await parsed(read, await read_bytes(request))


def _read(data: bytes, boundary: bytes, file_names: Collection[str], field_names: Collection[str]) -> Form:
    try:
        reader = _Reader(boundary, file_names, field_names)
        reader.feed(data)
    except FormParserError:
        raise _malformed() from None
    return reader.form


class _Reader:
    """Takes the whole body and keeps it as `form`."""

    def __init__(self, boundary: bytes, file_names: Collection[str], field_names: Collection[str]) -> None:
        self.form = Form()
        self._file_names, self._field_names = file_names, field_names
        self._parts = 0
        self._ended = False
        self._header = self._header_value = self._disposition = b""
        self._name = ""
        self._content = bytearray()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begins,
                "on_header_field": self._header_name_comes,
                "on_header_value": self._header_value_comes,
                "on_header_end": self._header_ends,
                "on_headers_finished": self._headers_end,
                "on_part_data": self._content_comes,
                "on_part_end": self._part_ends,
                "on_end": self._all_ends,
            },
        )

    def feed(self, data: bytes) -> None:
        """Raises FormParserError, and ApiError."""
        self._parser.write(data)
        if not self._ended:
            raise _malformed()

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ApiError(400, "invalid_form", f"The form has over {MAX_PARTS} parts.")
        self._header = self._header_value = self._disposition = b""
        self._content = bytearray()

    def _header_name_comes(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value_comes(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_ends(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header = self._header_value = b""

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = name = _text(options.get(b"name", b""), "The name of a part")
        if not name:
            raise _malformed()
        is_file = b"filename" in options
        if name not in self._file_names and name not in self._field_names:
            raise ApiError(400, "unknown_parameter", f"There is no parameter `{name}`.", name)
        if is_file != (name in self._file_names):
            wanted = "a field, not a file" if is_file else "a file, with a file name"
            raise ApiError(422, "invalid_type", f"`{name}` must be sent as {wanted}.", name)
        if name in self.form.fields or name in self.form.files:
            raise ApiError(400, "invalid_value", f"`{name}` is given twice.", name)

    def _content_comes(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]
        if self._name not in self._file_names and len(self._content) > MAX_FIELD_BYTES:
            raise ApiError(400, "invalid_value", f"`{self._name}` is over {MAX_FIELD_BYTES:,} bytes.", self._name)

    def _part_ends(self) -> None:
        if self._name in self._file_names:
            self.form.files[self._name] = bytes(self._content)
        else:
            self.form.fields[self._name] = _text(bytes(self._content), f"`{self._name}`")

    def _all_ends(self) -> None:
        self._ended = True


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ApiError(400, "input_not_utf8", f"{what} is not valid UTF-8.") from None


def _malformed() -> ApiError:
    return ApiError(400, "invalid_form", "The body is not valid multipart/form-data.")
