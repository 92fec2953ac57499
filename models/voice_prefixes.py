"""Prefixes of voices' prompts, kept across requests: a known voice's first hop does not pay for its prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from models.flow import Prefix


class VoicePrefixes:
    """At most `max_bytes`; the least recently used goes first. A prefix larger than all of it is not kept.

    `on_lookup` is told, of each that is asked for, whether it was there.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self.on_lookup: Callable[[bool], None] = lambda found: None
        self._held: OrderedDict[bytes, Prefix] = OrderedDict()

    def __contains__(self, voice: bytes) -> bool:
        return voice in self._held

    def get(self, voice: bytes) -> Prefix | None:
        prefix = self._held.get(voice)
        self.on_lookup(prefix is not None)
        if prefix is not None:
            self._held.move_to_end(voice)
        return prefix

    def put(self, voice: bytes, prefix: Prefix) -> None:
        if voice in self._held or prefix.bytes > self.max_bytes:
            return
        self._held[voice] = prefix
        self.bytes += prefix.bytes
        while self.bytes > self.max_bytes:
            _, oldest = self._held.popitem(last=False)
            self.bytes -= oldest.bytes
