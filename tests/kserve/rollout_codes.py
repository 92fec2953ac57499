"""The codes of every error that the project's code raises, told apart by whose fault the status says it is."""

from __future__ import annotations

from launch.operations.codes import raised


def error_codes() -> tuple[frozenset[str], frozenset[str]]:
    """Codes of the server's faults (429 and 5xx) and of the client's (the other 4xx)."""
    pairs = [(code, status) for code, statuses in raised().items() for status in statuses]
    server = frozenset(code for code, status in pairs if status == 429 or status >= 500)
    return server, frozenset(code for code, status in pairs if status != 429 and status < 500)
