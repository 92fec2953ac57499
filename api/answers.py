"""The audio of a speech as an HTTP response: streamed as it is made, as server-sent events, or a whole file."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from fastapi import Response
from fastapi.responses import JSONResponse

from api.engine_stream import EngineStream
from api.errors import ApiError, as_api_error
from api.synthesis import SegmentTime, Speech, first_of
from api.telemetry import Recording
from api.wish import check_format
from audio.encode import FORMATS, Coded, Encoder, coded_as, encode_whole, make_encoder

logger = logging.getLogger("cosyserve.api")

PLAIN_FORMATS = ("wav", "pcm")
"""Those whose coding is no work for a thread."""


@dataclass(frozen=True)
class Delivery:
    """How a speech is answered. `events`: as server-sent ones; `timed`: with the times of its segments.

    Raises ApiError unsupported_format, invalid_value.
    """

    audio_format: str = "wav"
    stream: bool = True
    events: bool = False
    timed: bool = False

    def __post_init__(self) -> None:
        check_format(self.audio_format, FORMATS, "response_format")
        if self.events and not self.stream:
            raise ApiError(400, "invalid_value", "stream_format sse needs stream true.", "stream")
        if self.timed and self.stream and not self.events:
            message = "Raw audio has no place for times: ask for stream_format sse, or for stream false."
            raise ApiError(400, "invalid_value", message, "timestamp_granularities")


async def answer(speech: Speech, delivery: Delivery, recording: Recording) -> Response:
    """Raises what the engine raises before there is any audio."""
    return await (_streamed if delivery.stream else _buffered)(speech, delivery, recording)


async def _buffered(speech: Speech, delivery: Delivery, recording: Recording) -> Response:
    samples = await speech.whole(recording)
    spoken = recording.seconds_so_far
    with recording.encoding():
        content = await asyncio.to_thread(encode_whole, delivery.audio_format, samples, speech.sample_rate)
    coded = coded_as(delivery.audio_format, speech.sample_rate)
    headers = {**_headers(speech, coded), **_measured(speech, samples, recording, spoken)}
    recording.finished("ok")
    if delivery.timed:
        return await asyncio.to_thread(
            JSONResponse, _described(speech, delivery, coded, samples, content), 200, headers
        )
    return Response(content, media_type=coded.content_type, headers=headers)


def _headers(speech: Speech, coded: Coded) -> dict[str, str]:
    """What is known before any audio."""
    headers = {
        "X-Model-Id": quote(speech.info.name),
        "X-Seed": str(speech.seed),
        "X-Sample-Rate": str(coded.sample_rate),
        "X-Usage-Input-Characters": str(len(speech.wish.text)),
    }
    if speech.info.revision is not None:
        headers["X-Model-Revision"] = quote(speech.info.revision)
    return headers


def _measured(speech: Speech, samples: np.ndarray, recording: Recording, spoken: float) -> dict[str, str]:
    """`spoken`: seconds until the last sample was there."""
    first = recording.seconds_to_first_audio or spoken
    took = {**speech.seconds, "ttfa": first, "speech": spoken, "encode": recording.seconds_so_far - spoken}
    return {
        "X-Finish-Reason": speech.summary.finish_reason,
        "X-Audio-Duration-Ms": str(round(1000 * len(samples) / speech.sample_rate)),
        "X-Usage-Output-Tokens": str(speech.summary.speech_tokens),
        "X-TTFA-Ms": str(round(1000 * first)),
        "Server-Timing": ", ".join(f"{stage};dur={1000 * seconds:.1f}" for stage, seconds in took.items()),
    }


def _described(speech: Speech, delivery: Delivery, coded: Coded, samples: np.ndarray, content: bytes) -> dict[str, Any]:
    return {
        "audio": base64.b64encode(content).decode(),
        "format": delivery.audio_format,
        "sample_rate": coded.sample_rate,
        "duration_s": round(len(samples) / speech.sample_rate, 3),
        **ending(speech, timed=True),
    }


def ending(speech: Speech, *, timed: bool) -> dict[str, Any]:
    """What is known when all is said: usage, finish_reason and, `timed`, segments."""
    summary = speech.summary
    usage = {"input_tokens": summary.text_tokens, "output_tokens": summary.speech_tokens}
    known: dict[str, Any] = {"usage": {**usage, "total_tokens": sum(usage.values())}}
    known["finish_reason"] = summary.finish_reason
    if timed:
        known["segments"] = _times(summary.segments)
    return known


def _times(segments: Sequence[SegmentTime]) -> list[dict[str, Any]]:
    return [
        {**asdict(segment), "start_s": round(segment.start_s, 3), "end_s": round(segment.end_s, 3)}
        for segment in segments
    ]


async def _streamed(speech: Speech, delivery: Delivery, recording: Recording) -> Response:
    blocks = speech.blocks(recording)
    first = await first_of(blocks)
    coded = coded_as(delivery.audio_format, speech.sample_rate)
    encoder = make_encoder(delivery.audio_format, speech.sample_rate)
    pieces = _encoded(first, blocks, encoder, delivery.audio_format, recording)
    return EngineStream(
        _events(pieces, speech, recording, delivery.timed) if delivery.events else _audio(pieces, recording),
        blocks,
        recording,
        media_type="text/event-stream" if delivery.events else coded.content_type,
        headers={
            **_headers(speech, coded),
            "X-TTFA-Ms": str(round(1000 * (recording.seconds_to_first_audio or 0.0))),
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        },
    )


async def _encoded(
    first: np.ndarray,
    blocks: AsyncGenerator[np.ndarray, None],
    encoder: Encoder,
    audio_format: str,
    recording: Recording,
) -> AsyncGenerator[bytes, None]:
    """The container's bytes, piece by piece, none empty."""
    if begin := encoder.begin():
        yield begin
    block: np.ndarray | None = first
    while block is not None:
        # What takes its time is done in a thread, as the loop feeds every stream.
        plain = audio_format in PLAIN_FORMATS
        with recording.encoding():
            data = encoder.feed(block) if plain else await asyncio.to_thread(encoder.feed, block)
        if data:
            yield data
        block = await anext(blocks, None)
    if rest := encoder.end():
        yield rest


async def _audio(pieces: AsyncGenerator[bytes, None], recording: Recording) -> AsyncGenerator[bytes, None]:
    """A failure breaks the chunked body off: it never looks like a finished file."""
    async for data in pieces:
        yield data
    recording.finished("ok")


async def _events(
    pieces: AsyncGenerator[bytes, None], speech: Speech, recording: Recording, timed: bool
) -> AsyncGenerator[bytes, None]:
    """OpenAI's `speech.audio.delta` events, then `speech.audio.done`, or `speech.audio.error`. `timed`: the first event
    after a segment has been made brings its times, and the last event has them all."""

    def event(kind: str, **fields: Any) -> bytes:
        return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()

    told = 0
    try:
        async for data in pieces:
            news = speech.spoken[told:] if timed else ()
            told += len(news)
            times = {"segments": _times(news)} if news else {}
            yield event("speech.audio.delta", audio=base64.b64encode(data).decode(), **times)
    except Exception as error:
        problem = as_api_error(error)
        logger.warning("a stream ended with %s", problem.code, exc_info=error)
        recording.finished(problem.code)
        yield event("speech.audio.error", **problem.body())
        return
    yield event("speech.audio.done", **ending(speech, timed=timed))
    recording.finished("ok")
