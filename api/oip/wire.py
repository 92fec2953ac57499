"""Protobuf messages, read only once their bytes have shown that they cost no more than their size says.

An empty message in a list takes two bytes on the wire and some ninety in memory, and the parser lets no other thread
run: 16 MiB of them would hold every stream up for seconds and take a gigabyte.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from api.errors import ApiError

MAX_FIELDS = 2**10
"""Of a message, those of its inner messages included: 32 tensors have a few hundred. Counting them keeps the loop."""
MAX_NAME_BYTES = 2**16
"""Of one string: names, ids and parameters. Text to be spoken and recordings are `bytes`."""
MAX_PACKED_BYTES = 2**22
"""Of all lists of varints: as many values. Floats, which take their size in memory, are not counted."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_NO_VARINTS = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


def read_message(kind: Any, data: bytes) -> Any:
    """The message of class `kind` in `data`. Raises ApiError invalid_message."""
    try:
        _check(data, kind.DESCRIPTOR)
        return kind.FromString(data)
    except (DecodeError, IndexError):
        raise _invalid("It is no valid protobuf message of this call") from None


def _check(data: bytes, kind: Descriptor) -> None:
    """Raises ApiError for what would cost too much, IndexError or DecodeError where `data` is no message."""
    fields = packed = 0
    inner = [(0, len(data), kind)]
    while inner:
        position, end, kind = inner.pop()
        while position < end:
            fields += 1
            if fields > MAX_FIELDS:
                raise _invalid(f"It has over {MAX_FIELDS:,} fields")
            tag, position = _varint(data, position)
            length = _FIXED.get(tag & 7, 0)
            if tag & 7 in (_VARINT, _LENGTH):
                value, position = _varint(data, position)
                length = value if tag & 7 == _LENGTH else 0
            elif not length:  # groups, which no field is
                raise DecodeError
            start, position = position, position + length
            if position > end:
                raise DecodeError
            field = kind.fields_by_number.get(tag >> 3)
            if field is None or tag & 7 != _LENGTH:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                inner.append((start, position, field.message_type))
            elif field.type == FieldDescriptor.TYPE_STRING:
                if length > MAX_NAME_BYTES:
                    raise _invalid(f"{field.name} has over {MAX_NAME_BYTES:,} bytes")
            elif field.type not in _NO_VARINTS:
                packed += length
                if packed > MAX_PACKED_BYTES:
                    raise _invalid(f"It has over {MAX_PACKED_BYTES:,} bytes of numbers that are not floating-point")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number that begins at `position`, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError


def _invalid(problem: str) -> ApiError:
    return ApiError(400, "invalid_message", f"The message cannot be read. {problem}.")
