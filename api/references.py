"""Inline reference audio: checked, encoded once, and remembered by its content."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from functools import partial

from api.backend import Backend
from api.reference_urls import ReferenceLinks, allowed_hosts, is_link
from api.threads import DECODERS, run_in
from api.tracing import stage
from audio.decode import MAX_PEAK, Audio, check_reference, decode_reference, parse_data_url
from audio.errors import AudioError
from models.conditioning import Conditioning
from runners.gauges import REFERENCE_CACHE, VOICE_CACHE_BYTES, voice_looked_up

# A data URL, a link, the bytes of a sound file, or decoded audio.
Reference = str | bytes | Audio


class ReferenceVoices:
    """Conditioning of inline references, the `capacity` most recently used ones kept (some 0.5 MB each)."""

    def __init__(self, backend: Backend, capacity: int = 64, links: ReferenceLinks | None = None) -> None:
        """`links` None: those that the environment allows."""
        self._backend = backend
        self._capacity = capacity
        if links is None and (hosts := allowed_hosts()):
            links = ReferenceLinks(hosts)
        self._links = links
        self._known: OrderedDict[str, asyncio.Task[Conditioning]] = OrderedDict()

    async def conditioning(self, reference: Reference) -> Conditioning:
        """Raises AudioError (`ref_audio_*`) and RequestError."""
        with stage("reference"):
            return await self._found(reference)

    async def _found(self, reference: Reference) -> Conditioning:
        if isinstance(reference, str):
            reference = await self.read(reference)
        key = await run_in(DECODERS, _content_hash, reference)
        encoding = self._known.get(key)
        voice_looked_up(REFERENCE_CACHE, encoding is not None)
        if encoding is None:
            # Of those who send one reference at once, the first has it encoded, also if its client leaves.
            self._known[key] = encoding = asyncio.create_task(self._encoded(reference))
            encoding.add_done_callback(partial(self._encoding_ended, key))
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return await asyncio.shield(encoding)

    async def read(self, reference: str) -> bytes:
        """The sound file in a data URL, or behind a link that is allowed. Raises AudioError."""
        if self._links is not None and is_link(reference):
            return await self._links.fetch(reference)
        return await run_in(DECODERS, parse_data_url, reference)

    async def _encoded(self, reference: bytes | Audio) -> Conditioning:
        audio = await run_in(DECODERS, _checked, reference)
        return await self._backend.encode(audio.samples.tobytes(), audio.sample_rate)

    def _encoding_ended(self, key: str, encoding: asyncio.Task[Conditioning]) -> None:
        """A failure is not remembered."""
        if self._known.get(key) is encoding and not _succeeded(encoding):
            del self._known[key]
        voices = [known.result() for known in self._known.values() if known.done() and _succeeded(known)]
        VOICE_CACHE_BYTES.labels(REFERENCE_CACHE).set(sum(map(_size, voices)))


def _succeeded(encoding: asyncio.Task[Conditioning]) -> bool:
    return not encoding.cancelled() and encoding.exception() is None


def _size(voice: Conditioning) -> int:
    return voice.embedding.nbytes + voice.prompt_tokens.nbytes + voice.prompt_mel.nbytes


def _content_hash(reference: bytes | Audio) -> str:
    if isinstance(reference, bytes):
        return hashlib.sha256(reference).hexdigest()
    # The rate goes first: no sound file begins with it, so that samples never pass for a file's bytes.
    return hashlib.sha256(f"{reference.sample_rate} Hz:".encode() + reference.samples.tobytes()).hexdigest()


def _checked(reference: bytes | Audio) -> Audio:
    if isinstance(reference, bytes):
        return decode_reference(reference)
    check_reference(reference)
    if (peak := abs(reference.samples).max()) > MAX_PEAK:
        message = f"The reference audio reaches {peak:.3g} times full scale; at most {MAX_PEAK:g} is accepted."
        raise AudioError("ref_audio_invalid", message)
    return reference
