"""What a soak asks for beside single requests: voices that come, change and go, readers who are slow, and rubbish."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.soaking.forms import FORM, form
from benchmarks.soaking.repertoire import SPEECH, speech_body
from benchmarks.soaking.requests import ANSWER_SECONDS, OK, Answer, Http, Ways, hang_up
from benchmarks.soaking.sounds import recording

VOICES = "/v1/audio/voices"
HALF_SAVED = "Half saved"
LIFE_REQUESTS = 9
_READ = 4096  # bytes, each time
_PAUSE = 0.04  # seconds between reads: twice as fast as 16 bit samples at 24 kHz are played


def saving(name: str, sample: bytes) -> Http:
    """Save a voice, whether there is one of that name or not."""
    fields = {"name": name, "consent": "The voice that is built in agreed.", "overwrite": "true"}
    return Http(f"save {name}", VOICES, form(fields, {"audio_sample": sample}), content_type=FORM)


@dataclass(frozen=True)
class VoiceLife:
    """A voice is saved, replaced, renamed and deleted, and speaks in between: LIFE_REQUESTS requests. Names are new
    each time; the sound is not."""

    name: str = "a voice's life"
    audio_format: str = "pcm"
    fixed: bool = True
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    async def ask(self, ways: Ways) -> Answer:
        name = f"Voice {next(self._numbers)}"
        renamed = f"{name}, renamed"
        await self._done(ways, saving(name, recording()))
        files = [await self._speech(ways, name)]
        await self._done(ways, saving(name, recording(speaker=1.07)))
        files.append(await self._speech(ways, name))
        voice = json.loads(await self._done(ways, Http("look up", f"{VOICES}/{name}", b"", method="GET")))
        rename = Http("rename", f"{VOICES}/{voice['id']}", json.dumps({"name": renamed}).encode(), method="PATCH")
        await self._done(ways, rename)
        files.append(await self._speech(ways, renamed))
        await self._done(ways, Http("delete", f"{VOICES}/{voice['id']}", b"", method="DELETE"))
        gone = await self._speaking(renamed).ask(ways)
        if gone.outcome != "404 voice_not_found":
            return Answer(f"{gone.outcome} after it was deleted")
        return Answer(OK, tuple(files))

    async def _speech(self, ways: Ways, voice: str) -> bytes:
        return await self._done(ways, self._speaking(voice))

    def _speaking(self, voice: str) -> Http:
        return Http("speak", SPEECH, speech_body("I was here.", 31, voice=voice, stream=False))

    async def _done(self, ways: Ways, request: Http) -> bytes:
        answer = await request.ask(ways)
        if answer.outcome != OK:
            raise ValueError(f"a voice's life: {request.name} was answered {answer.outcome}")
        return answer.files[0]


@dataclass(frozen=True)
class SlowReader:
    """Takes the answer to `request` in small pieces, with pauses, and little room in its socket."""

    request: Http
    fixed: bool = True

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def audio_format(self) -> str:
        return self.request.audio_format

    async def ask(self, ways: Ways) -> Answer:
        return await asyncio.wait_for(self._read(ways), ANSWER_SECONDS)

    async def _read(self, ways: Ways) -> Answer:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (ways.host, ways.port))
            reader, writer = await asyncio.open_connection(sock=sock, limit=_READ)
            writer.write(self.request.wire(ways).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            head = await reader.readuntil(b"\r\n\r\n")
            body = bytearray()
            while piece := await reader.read(_READ):
                body += piece
                await asyncio.sleep(_PAUSE)
            writer.close()
        file = bytes(body)
        if b"transfer-encoding: chunked" in head.lower():
            file = unchunked(file)
        return Answer(head.split()[1].decode(), (file,))


def unchunked(body: bytes) -> bytes:
    """What a body in chunks (RFC 9112, 7.1) holds: their sizes, which tell of time and not of sound, are none of it."""
    whole = bytearray()
    while True:
        size, _, body = body.partition(b"\r\n")
        if not (length := int(size, 16)):
            return bytes(whole)
        whole += body[:length]
        body = body[length + 2 :]


@dataclass(frozen=True)
class Rubbish:
    """Bytes that are no request, or a part of one, and then nothing more."""

    name: str
    sent: bytes = field(repr=False)

    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        reader, writer = await asyncio.open_connection(ways.host, ways.port)
        try:
            writer.write(self.sent)
            with suppress(asyncio.TimeoutError, OSError):
                await asyncio.wait_for(reader.read(), seconds)
        finally:
            hang_up(writer.transport, reset)


def rubbish() -> tuple[Rubbish, ...]:
    post = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    upgrade = f"GET {SPEECH}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return (
        Rubbish("silence", b""),
        Rubbish("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        Rubbish("half a head", post),
        Rubbish("half a body", post + b'Content-Length: 1000\r\n\r\n{"input": "Hel'),
        Rubbish("a broken chunk", post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}"),
        Rubbish("half an upgrade", upgrade.encode()),
    )
