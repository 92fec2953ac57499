"""Length-prefixed frames: how requests travel to the engine, and audio, its end and its failure come back.

An HTTP body that simply stops looks like one that is complete. So every stream ends in a frame that says how it
ended, and a stream without that frame is a failure: `read_frames` raises instead of returning.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from runners.request import RequestError

_HEADER = struct.Struct("<BI")  # kind, payload length in bytes
MAX_PAYLOAD = 64 * 1024 * 1024


class FrameKind(IntEnum):
    AUDIO = 1  # float32 little-endian samples, mono, at the model's sample rate
    END = 2  # JSON: how the request ended well
    ERROR = 3  # JSON: code, message, status
    SEGMENT = 4  # JSON: all audio of the next segment was sent; `end`: samples from the start
    REQUEST = 5  # a SpeechRequest: the first frame to the engine
    TEXT = 6  # UTF-8: more of an incremental request's text
    TEXT_END = 7  # empty: that was all of it


class FrameError(Exception):
    """The stream is not what frames look like, or it stopped before its last frame."""


@dataclass(frozen=True)
class Frame:
    """One unit of an engine stream. `payload` is raw bytes; `json()` reads frames that are not AUDIO."""

    kind: FrameKind
    payload: bytes

    @property
    def last(self) -> bool:
        """Whether the stream ends with it."""
        return self.kind in (FrameKind.END, FrameKind.ERROR)

    def json(self) -> dict[str, Any]:
        return json.loads(self.payload)

    def encode(self) -> bytes:
        return _HEADER.pack(self.kind, len(self.payload)) + self.payload

    @classmethod
    def of(cls, kind: FrameKind, **fields: Any) -> Frame:
        return cls(kind, json.dumps(fields, ensure_ascii=False).encode())

    @classmethod
    def error(cls, error: Exception) -> Frame:
        """The ERROR frame of a RequestError; any other exception tells nothing of its inside."""
        if not isinstance(error, RequestError):
            error = RequestError("engine_error", "The engine failed on this request.", 500)
        return cls.of(
            FrameKind.ERROR,
            code=error.code,
            message=error.message,
            status=error.status,
            retry_after=error.retry_after,
        )


async def read_frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Frame, None]:
    """Frames from a byte stream cut anywhere. Ends after END or ERROR; raises FrameError when neither comes."""
    async for frame in split_frames(chunks):
        yield frame
        if frame.last:
            return
    raise FrameError("the stream stopped before its last frame")


async def split_frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Frame, None]:
    """All frames of a byte stream cut anywhere, until it stops. Raises FrameError for what is none."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(buffer)
            if length > MAX_PAYLOAD:
                raise FrameError(f"a frame of {length} bytes is over the limit of {MAX_PAYLOAD}")
            if len(buffer) < _HEADER.size + length:
                break
            try:
                frame = Frame(FrameKind(kind), bytes(buffer[_HEADER.size : _HEADER.size + length]))
            except ValueError:
                raise FrameError(f"unknown frame kind {kind}") from None
            del buffer[: _HEADER.size + length]
            yield frame
