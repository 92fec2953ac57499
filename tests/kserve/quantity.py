"""Numbers as Kubernetes and Go write them: quantities (`12Gi`, `500m`), durations (`1h30m`) and whole numbers."""

from __future__ import annotations

import re

from kubernetes.utils.quantity import parse_quantity

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)"


class BadQuantityError(ValueError):
    """Not a number of the kind that was asked for."""


def quantity(text: object) -> float:
    """Bytes, cores or a count."""
    try:
        return float(parse_quantity(str(text)))
    except ValueError as error:
        raise BadQuantityError(f"{text!r} is not a quantity") from error


def seconds(text: str) -> float:
    """A Go duration in seconds; a bare number other than 0 is none."""
    if text == "0":
        return 0.0
    if not re.fullmatch(f"-?({_PART})+", text):
        raise BadQuantityError(f"{text!r} is not a duration")
    total = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))
    return -total if text.startswith("-") else total


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise BadQuantityError(f"{text!r} is not a number") from error


def whole(text: str) -> int:
    """A 32 bit whole number."""
    if not re.fullmatch("[-+]?[0-9]+", text) or abs(int(text)) >= 2**31:
        raise BadQuantityError(f"{text!r} is not a 32 bit whole number")
    return int(text)
