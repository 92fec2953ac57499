"""What a disk refuses, as the errors of the public surface."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runners.request import RequestError

logger = logging.getLogger("cosyserve.records")

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def as_request_errors(folder: Path) -> Iterator[None]:
    """OSError of the block, which works in `folder`, as RequestError: voice_store_full (507), voice_store_read_only,
    voice_store_unavailable (503). The folder is told to the log, not to the client."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        logger.warning("%s: %s", error.filename or folder, reason)
        if error.errno in _FULL:
            raise RequestError("voice_store_full", f"It could not be saved: {reason}.", 507) from error
        if error.errno in _READ_ONLY:
            message = f"This server may only read its folder of voices: {reason}."
            raise RequestError("voice_store_read_only", message, 503) from error
        raise unavailable(reason) from error


def unavailable(reason: str) -> RequestError:
    return RequestError("voice_store_unavailable", f"The folder of voices cannot be used: {reason}.", 503)
