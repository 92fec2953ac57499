"""Who speaks and how: every mode on any saved voice that can have it, and the stored record never changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from api.casting import modes_of
from api.errors import ApiError
from api.references import ReferenceVoices
from api.synthesis import Speaker, SpeechWish, prepare
from api.telemetry import Recording
from api.voice_entries import entries
from models.conditioning import Conditioning
from runners.request import ModelInfo, SpeechRequest, VoiceInfo
from runners.voice_store import VoiceStore
from tests.api.oip_backend import FakeBackend
from tests.runners.voice_folder import CONSENT, same, store

RECORDED = Conditioning(
    np.ones(192, np.float32), np.arange(25, dtype=np.int32), np.zeros((50, 80), np.float32), prompt_text_ids=()
)
IMPORTED = replace(RECORDED, prompt_text_ids=(4, 5, 6))
BARE = replace(RECORDED, prompt_tokens=np.zeros(0, np.int32), prompt_mel=np.zeros((0, 80), np.float32))


@dataclass
class Model(FakeBackend):
    """Follows instructions, and has a preset that was made from a recording."""

    async def describe(self) -> ModelInfo:
        info = await super().describe()
        recorded = VoiceInfo("recorded", ("zero_shot", "cross_lingual", "instruct"))
        return replace(info, modes=(*info.modes, "cross_lingual", "instruct"), voices=(*info.voices, recorded))


@pytest.fixture
def voices(tmp_path: Path) -> VoiceStore:
    saved = store(tmp_path)
    saved.create("told", RECORDED, consent=CONSENT, transcript="What I said.")
    saved.create("untold", RECORDED, consent=CONSENT)
    saved.create("imported", IMPORTED, consent=CONSENT)
    saved.create("bare", BARE, consent=CONSENT)
    return saved


async def _asked(voices: VoiceStore, **fields) -> SpeechRequest:
    backend = Model()
    speaker = Speaker(backend, ReferenceVoices(backend), voices)
    speech = await prepare(speaker, SpeechWish("Hello.", **fields), await backend.describe())
    recording = Recording("test")
    await speech.whole(recording)
    recording.finished("ok")
    (request,) = backend.requests
    return request


@pytest.mark.parametrize(
    ("voice", "task", "transcript", "cross_lingual"),
    [
        ("told", None, "What I said.", False),
        ("told", "zero_shot", "What I said.", False),
        ("told", "cross_lingual", None, True),
        ("told", "instruct", None, False),
        ("untold", None, None, True),
        ("untold", "cross_lingual", None, True),
        ("untold", "instruct", None, False),
        ("imported", None, None, False),
        ("imported", "zero_shot", None, False),
        ("imported", "cross_lingual", None, True),
        ("bare", None, None, False),
        ("bare", "sft", None, False),
    ],
)
async def test_a_saved_voice_speaks_in_every_mode_that_it_can_have(
    voices: VoiceStore, voice: str, task: str | None, transcript: str | None, cross_lingual: bool
) -> None:
    before = {path.name: path.read_bytes() for path in voices.folder.iterdir()}
    instructions = "Whisper." if task == "instruct" else None
    for name in (voice, voices.record(voice).id):
        request = await _asked(voices, voice=name, task_type=task, instructions=instructions)
        assert request.voice is None
        assert request.conditioning is not None
        stored = voices.get(voice)
        assert stored is not None and same(request.conditioning, stored.conditioning)
        assert (request.prompt_text, request.cross_lingual) == (transcript, cross_lingual)
        assert request.instructions == instructions
    assert {path.name: path.read_bytes() for path in voices.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("cosy", False)),
        ({"voice": ""}, ("cosy", False)),
        ({"voice": "other", "task_type": "sft"}, ("other", False)),
        ({"voice": "recorded"}, ("recorded", False)),
        ({"voice": "recorded", "task_type": "cross_lingual"}, ("recorded", True)),
        ({"voice": "recorded", "instructions": "Whisper."}, ("recorded", False)),
    ],
)
async def test_presets_speak_in_theirs(voices: VoiceStore, fields: dict, expected: tuple) -> None:
    request = await _asked(voices, **fields)
    assert (request.voice, request.cross_lingual) == expected
    assert request.conditioning is None


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"voice": "told", "task_type": "sft"}, "unsupported_parameter", "task_type"),
        ({"voice": "untold", "task_type": "zero_shot"}, "unsupported_parameter", "task_type"),
        ({"voice": "bare", "task_type": "cross_lingual"}, "unsupported_parameter", "task_type"),
        ({"voice": "bare", "instructions": "Whisper."}, "unsupported_parameter", "voice"),
        ({"voice": "cosy", "instructions": "Whisper."}, "unsupported_parameter", "voice"),
        ({"voice": "recorded", "task_type": "sft"}, "unsupported_parameter", "task_type"),
        ({"voice": "told", "instructions": "\u200b"}, "invalid_value", "instructions"),
        ({"voice": "told", "task_type": "instruct"}, "invalid_value", "task_type"),
        ({"voice": "told", "task_type": "zero_shot", "instructions": "Whisper."}, "invalid_value", "task_type"),
        ({"voice": "told", "ref_text": "What I said."}, "invalid_value", "ref_text"),
        ({"voice": "nobody"}, "voice_not_found", "voice"),
        ({"voice": "inline"}, "voice_required", "ref_audio"),
    ],
)
async def test_what_a_voice_cannot_do_is_refused(voices: VoiceStore, fields: dict, code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        await _asked(voices, **fields)
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_a_voice_is_listed_with_the_modes_it_speaks_in(voices: VoiceStore) -> None:
    info = await Model().describe()
    listed = {entry.name: entry.supported_modes for entry in entries(voices, info)}
    assert listed == {voice.name: modes_of(voices.record(voice.name), info) for voice in voices.list()}
    assert listed["told"] == ["zero_shot", "cross_lingual", "instruct"]
    plain = replace(info, modes=("preset", "zero_shot", "cross_lingual"))
    assert modes_of(voices.record("told"), plain) == ["zero_shot", "cross_lingual"]
