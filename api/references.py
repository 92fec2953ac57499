"""Inline reference audio: checked, encoded once, and remembered by its content."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from api.backend import Backend
from audio.decode import decode_reference, parse_data_url
from models.conditioning import Conditioning


class ReferenceVoices:
    """Conditioning of inline references, the `capacity` most recently used ones kept (some 0.5 MB each)."""

    def __init__(self, backend: Backend, capacity: int = 64) -> None:
        self._backend = backend
        self._capacity = capacity
        self._known: OrderedDict[str, Conditioning] = OrderedDict()

    async def conditioning(self, data_url: str) -> Conditioning:
        """Raises AudioError (`ref_audio_*`) and RequestError."""
        data = parse_data_url(data_url)
        key = hashlib.sha256(data).hexdigest()
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        audio = await asyncio.to_thread(decode_reference, data)
        voice = await self._backend.encode(audio.samples.tobytes(), audio.sample_rate)
        self._known[key] = voice
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return voice
