"""What the public surface needs from the rest: a small protocol, so that tests can stand in for the runners."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from models.conditioning import Conditioning
from runners.frames import Frame
from runners.request import ModelInfo, SpeechRequest
from text.frontend import TextFrontend


class Backend(Protocol):
    """The service behind the API."""

    @property
    def frontend(self) -> TextFrontend:
        """The text front end of the loaded model."""

    async def is_ready(self) -> bool:
        """Whether requests would be served now: false while the model loads, and from SIGTERM on."""

    async def describe(self) -> ModelInfo:
        """The loaded model. Raises RequestError `loading` (503) before it is."""

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        """A voice from float32 mono samples. Raises RequestError."""

    def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        """AUDIO frames and an END frame. Raises RequestError; closing it cancels the request."""

    def dictate(self, request: SpeechRequest, texts: AsyncIterator[str]) -> AsyncGenerator[Frame, None]:
        """As `stream`, of an incremental request: `texts` go to the engine as they come."""
