"""Tensors of the Open Inference Protocol, checked and decoded from what clients send, and encoded again."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from api.errors import ApiError

BYTES = "BYTES"
NUMBERS = {
    name: np.dtype(code)
    for name, code in {
        "BOOL": "?",
        "UINT8": "<u1",
        "UINT16": "<u2",
        "UINT32": "<u4",
        "UINT64": "<u8",
        "INT8": "<i1",
        "INT16": "<i2",
        "INT32": "<i4",
        "INT64": "<i8",
        "FP16": "<f2",
        "FP32": "<f4",
        "FP64": "<f8",
    }.items()
}
MAX_RANK = 8
MAX_ELEMENTS = 2**24
"""No request body holds more: one byte each fills it."""
MAX_TEXTS = 2**10
"""Elements of a BYTES tensor, which become Python objects one by one: no model takes more than one."""
_LENGTH = struct.Struct("<I")
_PIECE = 2**14  # values converted at once: a longer run would hold the interpreter, and with it every stream


@dataclass(frozen=True, eq=False)
class Tensor:
    """`data` is flat, in row-major order: an array of `datatype`, or the elements of a BYTES tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: np.ndarray | tuple[bytes, ...]


def from_values(name: str, datatype: str, shape: Any, values: Any) -> Tensor:
    """A tensor from Python values: a list, nested or flat, or a message's flat sequence.

    Raises ApiError invalid_tensor, input_not_utf8.
    """
    shape, count = _checked_shape(name, datatype, shape)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise _invalid(name, "its data must be a list")
    flat = _flat(values, count) if isinstance(values, list) else values
    if len(flat) != count:
        found = f"more than {count:,}" if len(flat) > count else f"{len(flat):,}"
        raise _invalid(name, f"its shape {list(shape)} makes {count:,} elements, its data has {found}")
    data = _texts(name, flat) if datatype == BYTES else _numbers(name, datatype, flat)
    return Tensor(name, datatype, shape, data)


def from_raw(name: str, datatype: str, shape: Any, raw: bytes) -> Tensor:
    """A tensor from little-endian bytes; elements of BYTES have a uint32 length before them. Raises ApiError."""
    shape, count = _checked_shape(name, datatype, shape)
    if datatype == BYTES:
        return Tensor(name, datatype, shape, _elements(name, raw, count))
    dtype = _dtype(name, datatype)
    if len(raw) != count * dtype.itemsize:
        wanted = f"{count * dtype.itemsize:,} bytes"
        raise _invalid(name, f"its shape {list(shape)} of {datatype} makes {wanted}, its data has {len(raw):,}")
    return Tensor(name, datatype, shape, np.frombuffer(raw, dtype))


def raw_bytes(tensor: Tensor) -> bytes:
    """The inverse of `from_raw`."""
    if isinstance(tensor.data, tuple):
        return b"".join(_LENGTH.pack(len(element)) + element for element in tensor.data)
    return np.ascontiguousarray(tensor.data, NUMBERS[tensor.datatype]).tobytes()


def json_values(tensor: Tensor) -> Iterator[bytes]:
    """The flat JSON list of a tensor, in pieces. Elements of BYTES must be UTF-8."""
    if isinstance(tensor.data, tuple):
        yield json.dumps([element.decode() for element in tensor.data]).encode()
        return
    yield b"["
    for start in range(0, len(tensor.data), _PIECE):
        comma = b"," if start else b""
        yield comma + json.dumps(tensor.data[start : start + _PIECE].tolist(), separators=(",", ":"))[1:-1].encode()
    yield b"]"


def _invalid(name: str, problem: str) -> ApiError:
    return ApiError(400, "invalid_tensor", f"Tensor {name!r}: {problem}.", name)


def _dtype(name: str, datatype: str) -> np.dtype:
    if datatype not in NUMBERS:
        raise _invalid(name, f"there is no datatype {datatype!r}")
    return NUMBERS[datatype]


def _checked_shape(name: str, datatype: str, shape: Any) -> tuple[tuple[int, ...], int]:
    """The shape and its number of elements."""
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) > MAX_RANK:
        raise _invalid(name, f"its shape must be a list of at most {MAX_RANK} sizes")
    if not all(type(size) is int and 0 <= size <= MAX_ELEMENTS for size in shape):
        raise _invalid(name, f"each size in its shape must be a whole number from 0 to {MAX_ELEMENTS:,}")
    count, limit = math.prod(shape), MAX_TEXTS if datatype == BYTES else MAX_ELEMENTS
    if count > limit:
        raise _invalid(name, f"its shape makes {count:,} elements, over {limit:,}")
    return tuple(shape), count


def _flat(values: list, count: int) -> list:
    """The leaves of nested lists in order; stops above `count`."""
    if not any(isinstance(value, list) for value in values):
        return values
    flat: list = []
    levels: list[Iterator] = [iter(values)]
    while levels and len(flat) <= count:
        for value in levels[-1]:
            if isinstance(value, list):
                levels.append(iter(value))
                break
            flat.append(value)
            if len(flat) > count:
                break
        else:
            levels.pop()
    return flat


def _texts(name: str, values: Iterable) -> tuple[bytes, ...]:
    elements = []
    for value in values:
        if isinstance(value, str):
            try:
                value = value.encode()
            except UnicodeEncodeError:
                raise ApiError(400, "input_not_utf8", f"Tensor {name!r} is not valid Unicode text.", name) from None
        if not isinstance(value, bytes):
            raise _invalid(name, "elements of BYTES must be strings")
        elements.append(value)
    return tuple(elements)


def _numbers(name: str, datatype: str, values: Sequence) -> np.ndarray:
    dtype = _dtype(name, datatype)
    pieces = (values[start : start + _PIECE] for start in range(0, len(values), _PIECE))
    return np.concatenate([np.zeros(0, dtype), *(_piece(name, datatype, dtype, piece) for piece in pieces)])


def _piece(name: str, datatype: str, dtype: np.dtype, values: Sequence) -> np.ndarray:
    kinds = {"b": frozenset([bool]), "f": frozenset([int, float])}.get(dtype.kind, frozenset([int]))
    if not kinds.issuperset(map(type, values)):
        raise _invalid(name, f"its data must be {datatype} values")
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        if min(values) < limits.min or max(values) > limits.max:
            raise _invalid(name, f"its data is out of the range of {datatype}")
    try:
        with np.errstate(over="ignore"):  # becomes infinite, which is refused where finite numbers are needed
            return np.array(values, dtype)
    except OverflowError:
        raise _invalid(name, f"its data is out of the range of {datatype}") from None


def _elements(name: str, raw: bytes, count: int) -> tuple[bytes, ...]:
    elements: list[bytes] = []
    position = 0
    while position < len(raw) and len(elements) < count:
        start = position + _LENGTH.size
        if start > len(raw):
            break
        (length,) = _LENGTH.unpack_from(raw, position)
        position = start + length
        if position > len(raw):
            break
        elements.append(bytes(raw[start:position]))
    if position != len(raw) or len(elements) != count:
        raise _invalid(name, f"its data is not {count:,} elements, each with its length as uint32 before it")
    return tuple(elements)
