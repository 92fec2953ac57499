"""What the layers below refuse, told with the parameter of the route that was at fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from api.errors import ApiError, as_api_error
from audio.errors import AudioError
from runners.request import RequestError
from text.errors import TextError


@contextmanager
def at_fault(*, codes: Mapping[str, str] | None = None, params: Mapping[str, str] | None = None) -> Iterator[None]:
    """Errors of the block as ApiError. `codes`: the parameter by the error's code; `params`: what the route calls a
    parameter that other routes call otherwise."""
    try:
        yield
    except (ApiError, RequestError, AudioError, TextError) as error:
        problem = as_api_error(error)
        param = (codes or {}).get(problem.code, problem.param)
        problem.param = (params or {}).get(param or "", param)
        raise problem from error
