"""Bytes that were damaged on the way, in each layer that reads any: understood, or refused by its own error.

COSYSERVE_FUZZ: how many times as many examples as in the default run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from api.errors import ApiError
from api.form import _read
from api.schema import SpeechBody, loads, validated
from models.checkpoint import read_state_dict
from models.conditioning import Conditioning, load_presets
from models.config import EMBEDDED, load_config
from models.errors import ModelError
from runners.frames import Frame, FrameError, FrameKind, read_frames
from runners.request import RequestError, Sampling, SpeechRequest
from tests.fuzz.damage import CHANGES, HANG_SECONDS, TIMES, Changes, damaged
from tests.runners.voice_folder import CONSENT, conditioning, store

CONFIG = load_config(EMBEDDED)


async def frames_of(data: bytes) -> None:
    async def pieces():
        for start in range(0, len(data), 7):
            yield data[start : start + 7]

    async for _ in read_frames(pieces()):
        pass


def frames(data: bytes) -> None:
    coroutine = frames_of(data)
    with pytest.raises(StopIteration):  # nothing in it waits
        coroutine.send(None)


def form(data: bytes) -> None:
    _read(data, b"edge", ("ref_audio",), SpeechBody.model_fields)


def body(data: bytes) -> None:
    values = loads(data)
    if isinstance(values, dict):
        validated(values, SpeechBody)


def voice(data: bytes) -> None:
    Conditioning.from_bytes(data).to_bytes()


def in_file(read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def read_bytes(data: bytes) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "file.pt"
            path.write_bytes(data)
            read(path)

    return read_bytes


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@dataclass(frozen=True)
class Layer:
    read: Callable[[bytes], object]
    good: bytes
    error: type[Exception]


PART = b'--edge\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
FIELDS = {
    "input": "Good morning.",
    "voice": {"id": "a"},
    "speed": 1.5,
    "references": [{"audio_path": "x", "text": "y"}],
}
REQUEST = SpeechRequest(("One.", "Two."), None, conditioning(tokens=2), "Three.", sampling=Sampling(top_p=0.5), seed=7)
LAYERS = {
    "form": Layer(
        form,
        PART % (b"input", b"", b"Hi.") + PART % (b"ref_audio", b'; filename="a.wav"', b"RIFF" * 9) + b"--edge--\r\n",
        ApiError,
    ),
    "json": Layer(body, json.dumps(FIELDS).encode(), ApiError),
    "frames": Layer(
        frames, Frame(FrameKind.AUDIO, bytes(80)).encode() + Frame.of(FrameKind.END, samples=20).encode(), FrameError
    ),
    "checkpoint": Layer(
        in_file(read_state_dict), saved({"a.weight": torch.ones(2, 3), "a.bias": torch.ones(2)}), ModelError
    ),
    "presets": Layer(
        in_file(lambda path: load_presets(path, CONFIG)), saved({"a": {"embedding": torch.ones(1, 192)}}), ModelError
    ),
    "request": Layer(SpeechRequest.from_bytes, REQUEST.to_bytes(), RequestError),
    "voice": Layer(
        lambda data: Conditioning.from_bytes(data).to_bytes(), conditioning(tokens=2).to_bytes(), ModelError
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_damaged_bytes_are_understood_or_refused(name: str) -> None:
    layer = LAYERS[name]
    layer.read(layer.good)

    @settings(max_examples=100 * TIMES, deadline=HANG_SECONDS * 1000)
    @given(CHANGES, st.floats(0, 1))
    def read(changes: Changes, kept: float) -> None:
        try:
            layer.read(damaged(layer.good, changes, kept))
        except layer.error as error:
            assert len(str(error)) > 10

    read()


def test_a_damaged_record_of_a_voice_hides_no_other(tmp_path: Path) -> None:
    voices = store(tmp_path)
    kept = voices.create("kept", conditioning(), consent=CONSENT)
    path = tmp_path / f"{voices.create('damaged', conditioning(1), consent=CONSENT).id}.json"
    good = path.read_bytes()

    @settings(max_examples=60 * TIMES, deadline=HANG_SECONDS * 1000)
    @given(CHANGES, st.floats(0, 1))
    def read(changes: Changes, part: float) -> None:
        path.write_bytes(damaged(good, changes, part))
        fresh = store(tmp_path)
        assert kept.id in [record.id for record in fresh.list()]
        voice = fresh.get("kept")
        assert voice is not None and voice.name == "kept"

    read()
