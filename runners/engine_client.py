"""The entry service's end of the framed stream: one HTTP request per speech request over the engine's socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import aiohttp

from runners.frames import Frame, FrameError, FrameKind, read_frames
from runners.probe import connect
from runners.request import RequestError, SpeechRequest
from runners.speech_engine import SYNTHESIZE_PATH
from runners.watch import RunnerWatch


class EngineClient:
    """Streams speech from an engine at `url` (`file:///path/to.sock` or `http://host:port`), which `watch` watches."""

    def __init__(self, url: str, watch: RunnerWatch) -> None:
        self._watch = watch
        connector, base = connect(url)
        self._url = base + SYNTHESIZE_PATH
        # No total limit: a stream lasts as long as its speech. The engine is on the same machine, so connecting is not
        # waited for longer than this.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def close(self) -> None:
        await self._session.close()

    async def stream(
        self, request: SpeechRequest, texts: AsyncIterator[str] | None = None
    ) -> AsyncGenerator[Frame, None]:
        """AUDIO frames, then END. Raises RequestError for an ERROR frame and for a stream that breaks off.

        `texts`: of an incremental request, sent as they come while audio comes back. Closing the iterator cancels the
        request in the engine.
        """
        asked = Frame(FrameKind.REQUEST, request.to_bytes()).encode()
        body = asked if texts is None else _body(asked, texts)
        try:
            call = self._session.post(self._url, data=body, allow_redirects=False)
            async with await self._watch.answer(call) as response:
                if response.status != 200:
                    raise RequestError("engine_unavailable", "The engine is not available.", 503)
                async with aclosing(read_frames(response.content.iter_any())) as frames:
                    async for frame in frames:
                        if frame.kind is FrameKind.ERROR:
                            raise RequestError(**frame.json())
                        yield frame
        except aiohttp.ClientConnectorError as error:
            raise RequestError("engine_unavailable", "The engine is not available.", 503) from error
        except (aiohttp.ClientError, FrameError, ConnectionError) as error:
            raise RequestError("engine_error", "The engine stopped in the middle of this request.", 500) from error


async def _body(asked: bytes, texts: AsyncIterator[str]) -> AsyncGenerator[bytes, None]:
    yield asked
    async for text in texts:
        yield Frame(FrameKind.TEXT, text.encode()).encode()
    yield Frame(FrameKind.TEXT_END, b"").encode()
