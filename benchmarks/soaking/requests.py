"""What a soak can ask for: an HTTP request, a WebSocket session, a gRPC call; each answered, or left at some moment."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import grpc
from websockets.asyncio.client import ClientConnection, connect

from api.oip.messages import SERVICE, message

ANSWER_SECONDS = 120.0
OK = "200"
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset, and what is unsent is dropped
_UNLIMITED = [("grpc.max_receive_message_length", -1)]

Files = tuple[bytes, ...]
Reader = Callable[[bytes], Files]


@dataclass(frozen=True)
class Answer:
    """`outcome`: OK, or the status and the code of the error. `files`: the sounds."""

    outcome: str
    files: Files = ()


class Ways:
    """The ways to one server, for so long as a round lasts: nothing stays open between rounds."""

    def __init__(self, url: str, grpc_address: str) -> None:
        split = urlsplit(url)
        self.url, self.host, self.port = url, split.hostname or "", split.port or 80
        self._grpc_address = grpc_address

    async def __aenter__(self) -> Ways:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        self.http = aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        self.grpc = grpc.aio.insecure_channel(self._grpc_address, options=_UNLIMITED)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.http.close()
        await self.grpc.close()


class Asked(Protocol):
    """`name`: unique. `audio_format`: of the answer's files. `fixed`: the same request has the same answer."""

    @property
    def name(self) -> str: ...
    @property
    def audio_format(self) -> str: ...
    @property
    def fixed(self) -> bool: ...

    async def ask(self, ways: Ways) -> Answer:
        """Listen to the end. Raises what the transport raises."""


class Leaving(Protocol):
    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        """Ask, and go away after `seconds`, by a TCP reset or in order; returns early if the answer is there."""


class Request(Asked, Leaving, Protocol):
    """Answered, or left."""


def hang_up(transport: Any, reset: bool) -> None:
    if reset and (sock := transport.get_extra_info("socket")) is not None:
        with suppress(OSError):  # the other side was faster
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


def whole_body(body: bytes) -> Files:
    return (body,)


@dataclass(frozen=True)
class Http:
    """`read`: the sounds in the body of a success."""

    name: str
    path: str
    body: bytes = field(repr=False)
    audio_format: str = "pcm"
    content_type: str = "application/json"
    method: str = "POST"
    read: Reader = whole_body
    fixed: bool = True

    async def ask(self, ways: Ways) -> Answer:
        headers = {"Content-Type": self.content_type}
        async with ways.http.request(self.method, self.path, data=self.body, headers=headers) as response:
            body = await response.read()
            if response.status < 300:
                return Answer(OK, self.read(body))
            return Answer(f"{response.status} {code_in(body)}")

    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        reader, writer = await asyncio.open_connection(ways.host, ways.port)
        try:
            writer.write(self.wire(ways))
            with suppress(asyncio.TimeoutError, OSError):
                await asyncio.wait_for(_drained(reader), seconds)
        finally:
            hang_up(writer.transport, reset)

    def wire(self, ways: Ways) -> bytes:
        """The request as it goes over the line, on a connection that ends with it."""
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: {ways.host}:{ways.port}\r\nConnection: close\r\n"
        head += f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n\r\n"
        return head.encode() + self.body


@dataclass(frozen=True)
class Live:
    """A session of `/v1/audio/speech/stream` with `texts`, one file for each sentence."""

    name: str
    config: dict[str, Any]
    texts: tuple[str, ...]
    audio_format: str = "pcm"
    fixed: bool = True

    async def ask(self, ways: Ways) -> Answer:
        async with self._session(ways) as session:
            await self._say(session)
            files: list[bytes] = []
            while True:
                received = await asyncio.wait_for(session.recv(), ANSWER_SECONDS)
                if isinstance(received, bytes):
                    files[-1] += received
                    continue
                event = json.loads(received)
                if event["type"] == "audio.start":
                    files.append(b"")
                elif event["type"] == "error":
                    return Answer(f"error {event['code']}")
                elif event["type"] == "session.done":
                    return Answer(OK, tuple(files))

    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        async with self._session(ways) as session:
            await self._say(session)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(session.wait_closed(), seconds)
            hang_up(session.transport, reset)

    def _session(self, ways: Ways) -> connect:
        url = f"ws://{ways.host}:{ways.port}/v1/audio/speech/stream"
        return connect(url, max_size=None, compression=None, ping_interval=None, close_timeout=1)

    async def _say(self, session: ClientConnection) -> None:
        messages = [{"type": "session.config", **self.config}]
        messages += [{"type": "input.text", "text": text} for text in self.texts]
        for one in (*messages, {"type": "input.done"}):
            await session.send(json.dumps(one))


@dataclass(frozen=True)
class Grpc:
    """A call of the Open Inference Protocol, streamed or not. The model's audio comes as the bytes of int16."""

    name: str
    request: dict[str, Any]
    streamed: bool = False
    audio_format: str = "pcm"
    fixed: bool = True

    async def ask(self, ways: Ways) -> Answer:
        try:
            return Answer(OK, (b"".join([_audio_in(answer) async for answer in self._answers(ways)]),))
        except grpc.aio.AioRpcError as error:
            return Answer(f"{error.code().name} {(error.details() or '').partition(':')[0]}")

    async def leave(self, ways: Ways, seconds: float, reset: bool) -> None:
        """A channel is shared: `reset` or not, the call is cancelled."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ask(ways), seconds)

    async def _answers(self, ways: Ways) -> Any:
        data = message("ModelInferRequest")(**self.request).SerializeToString()
        if not self.streamed:
            call = ways.grpc.unary_unary(f"/{SERVICE}/ModelInfer")
            yield message("ModelInferResponse").FromString(await call(data, timeout=ANSWER_SECONDS))
            return
        stream = ways.grpc.stream_stream(f"/{SERVICE}/ModelStreamInfer")(timeout=ANSWER_SECONDS)
        try:
            await stream.write(data)
            await stream.done_writing()
            async for received in stream:
                answer = message("ModelStreamInferResponse").FromString(received)
                if answer.error_message:
                    raise RuntimeError(answer.error_message)
                yield answer.infer_response
        finally:
            stream.cancel()


def _audio_in(answer: Any) -> bytes:
    for index, output in enumerate(answer.outputs):
        if output.name == "audio":
            return answer.raw_output_contents[index]
    return b""


def code_in(body: bytes) -> str:
    """The stable code of an error, of either shape."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return "no code"
    return str(error["code"]) if isinstance(error, dict) else str(error).partition(":")[0]


async def _drained(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass
