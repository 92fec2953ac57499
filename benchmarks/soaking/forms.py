"""Forms with files as bytes: a request that is left half-way goes over the line by hand."""

from __future__ import annotations

from collections.abc import Mapping

BOUNDARY = "a-boundary-that-is-in-no-recording"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def form(fields: Mapping[str, str], files: Mapping[str, bytes]) -> bytes:
    """A body of the content type FORM."""
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts += [(f'name="{name}"; filename="{name}.wav"', file) for name, file in files.items()]
    lines = [
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {name}\r\n\r\n".encode() + value for name, value in parts
    ]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])
