"""Why a WebSocket session ends, and the close code that says so."""

from __future__ import annotations

import logging

from api.errors import ApiError, as_api_error

logger = logging.getLogger("cosyserve.api")

# RFC 6455, section 7.4.1, and its registry.
NORMAL, UNSUPPORTED_DATA, GONE, POLICY, TOO_BIG = 1000, 1003, 1006, 1008, 1009
INTERNAL, RESTART, TRY_LATER = 1011, 1012, 1013


class FatalError(Exception):
    """The session ends with this problem and this close code."""

    def __init__(self, problem: ApiError, close_code: int) -> None:
        super().__init__(problem.code)
        self.problem, self.close_code = problem, close_code


def close_code_of(problem: ApiError) -> int:
    """The close code of a session that ends with `problem`."""
    if problem.status in (429, 503):
        return TRY_LATER
    return POLICY if problem.status < 500 else INTERNAL


def fatal(error: Exception) -> FatalError:
    """The end that any exception of the layers below is. A bug leaves its traceback in the log."""
    problem = as_api_error(error)
    if problem.code == "internal_error":
        logger.error("a session failed", exc_info=error)
    return FatalError(problem, close_code_of(problem))
