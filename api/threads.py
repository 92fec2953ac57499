"""Threads of their own for what may hold a thread for seconds: the streams' encoders never wait behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Whoever writes to the folder of voices may wait ten seconds for the lock of another process; readers do not.
STORE_READERS = ThreadPoolExecutor(4, "store-reader")
STORE_WRITERS = ThreadPoolExecutor(4, "store-writer")
# A long text takes seconds, and cannot be stopped.
TEXT_READERS = ThreadPoolExecutor(2, "text")
# Each large body takes several times its size while it is read, and each thread takes its turns from the loop's.
BODY_READERS = ThreadPoolExecutor(2, "reader")
# A decoded recording takes many times the memory of its file.
DECODERS = ThreadPoolExecutor(2, "decoder")


async def run_in(
    threads: ThreadPoolExecutor,
    work: Callable[Arguments, Result],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> Result:
    """What `work` returns in one of `threads`."""
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *arguments, **options))
