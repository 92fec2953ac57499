"""Frames survive any cut of the byte stream, and a stream without its last frame is a failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.frames import MAX_PAYLOAD, Frame, FrameError, FrameKind, read_frames


async def _read(chunks: list[bytes]) -> list[Frame]:
    async def source():
        for chunk in chunks:
            yield chunk

    return [frame async for frame in read_frames(source())]


def _cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, start = [], 0
    for size in sizes:
        chunks.append(data[start : start + size])
        start += size
    return [*chunks, data[start:]]


@given(st.lists(st.binary(max_size=200), max_size=5), st.lists(st.integers(0, 50), max_size=20))
async def test_frames_are_the_same_however_the_bytes_are_cut(payloads: list[bytes], sizes: list[int]) -> None:
    frames = [*(Frame(FrameKind.AUDIO, payload) for payload in payloads), Frame.of(FrameKind.END, samples=3)]
    data = b"".join(frame.encode() for frame in frames)
    assert await _read(_cut(data, sizes)) == frames


@given(st.integers(0, 100))
async def test_a_stream_that_stops_before_its_end_frame_is_an_error(length: int) -> None:
    data = (Frame(FrameKind.AUDIO, bytes(80)).encode() + Frame.of(FrameKind.END).encode())[:length]
    if length < 85 + 5 + 2:
        with pytest.raises(FrameError):
            await _read([data])
    else:
        assert (await _read([data]))[-1].kind is FrameKind.END


async def test_an_error_frame_ends_the_stream_and_carries_its_code() -> None:
    frames = await _read([Frame.of(FrameKind.ERROR, code="overloaded", status=429).encode() + b"more"])
    assert frames[-1].json() == {"code": "overloaded", "status": 429}


@pytest.mark.parametrize("header", [b"\x09\x00\x00\x00\x00", b"\x01" + (MAX_PAYLOAD + 1).to_bytes(4, "little")])
async def test_what_is_no_frame_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        await _read([header])
