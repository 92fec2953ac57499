"""A streaming response over an engine's stream: however it ends, the engine's request ends with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.errors import as_api_error
from api.telemetry import Recording, ended


class EngineStream(StreamingResponse):
    """Closes `frames`, the stream that `content` is made of, also when the client left before the first byte."""

    def __init__(
        self, content: AsyncGenerator[bytes, None], frames: AsyncGenerator[Any, None], recording: Recording, **options
    ) -> None:
        super().__init__(content, **options)
        self._content, self._frames, self._recording = content, frames, recording

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except Exception as error:
            self._recording.finished(as_api_error(error).code)
            raise
        finally:
            self._recording.finished("cancelled")  # unless the content has said how it ended
            ended(self._recording.outcome or "ok")
            await self._content.aclose()
            await self._frames.aclose()
