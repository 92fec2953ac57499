"""`/v1/audio/voices` and `/v1/pronunciation-dictionaries`: what is kept, what is refused, and how it is told."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import fcntl
import io
import json
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from api import dictionaries, references
from api.app import create_app
from api.references import ReferenceVoices
from models.conditioning import Conditioning
from runners.request import ModelInfo, RequestError
from runners.voice_store import VoiceStore
from tests.api.oip_backend import FakeBackend
from tests.runners.voice_folder import conditioning, in_child, store
from text.errors import TextError

VOICES, DICTIONARIES = "/v1/audio/voices", "/v1/pronunciation-dictionaries"
SPEECH = "/v1/audio/speech"
CONSENT = "I am Ada, and I agree."


class Backend(FakeBackend):
    """Encodes a recording as numbers that follow from its samples; speaks in every mode."""

    async def describe(self) -> ModelInfo:
        modes = ("preset", "zero_shot", "cross_lingual", "instruct")
        return dataclasses.replace(await super().describe(), modes=modes)

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        await super().encode(samples, sample_rate)
        return conditioning(hash((samples, sample_rate)) % 2**32)


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
async def http(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("COSYSERVE_VOICES", str(tmp_path / "voices"))
    (tmp_path / "voices").mkdir()
    async with _client(backend) as client:
        yield client


def _client(backend: Backend) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server")


def _sample(seconds: float = 2.0, rate: int = 24_000, form: str = "WAV") -> bytes:
    time = np.arange(int(seconds * rate)) / rate
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 150 * time) * np.sin(2 * np.pi * 2 * time), rate, format=form)
    return file.getvalue()


async def _save(http: httpx.AsyncClient, name: str = "Ada", sample: bytes | None = None, **fields: Any) -> Any:
    fields = {"name": name, "consent": CONSENT, **fields}
    files = {"audio_sample": ("ada.wav", _sample() if sample is None else sample, "audio/wav")}
    return await http.post(VOICES, data={key: value for key, value in fields.items() if value is not None}, files=files)


def _refused(answer: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert len(error["message"]) > 10


async def test_a_saved_voice_is_listed_shown_renamed_and_deleted(http: httpx.AsyncClient) -> None:
    saved = await _save(http, ref_text="Good day.", description="warm")
    assert saved.status_code == 201
    voice = saved.json()
    assert saved.headers["location"] == f"{VOICES}/{voice['id']}"
    presets, mine = (await http.get(VOICES)).json()["voices"][:2], (await http.get(VOICES)).json()["voices"][2:]
    assert [preset["id"] for preset in presets] == ["cosy", "other"] and presets[0]["default"]
    assert [entry["id"] for entry in mine] == [voice["id"]]
    entry = mine[0]
    assert entry["supported_modes"] == ["zero_shot", "cross_lingual", "instruct"]
    assert (entry["type"], entry["models"], entry["languages"]) == ("cloned", ["tiny"], ["en"])
    shown = (await http.get(f"{VOICES}/{voice['id']}")).json()
    assert shown == voice == (await http.get(f"{VOICES}/Ada")).json()
    assert shown["sample_seconds"] == 1.0  # 25 speech tokens
    assert (shown["ref_text"], shown["description"]) == ("Good day.", "warm")
    assert shown["consent"] == {"id": entry["consent_id"], "statement": CONSENT, "given_at": entry["created_at"]}
    changed = (await http.patch(f"{VOICES}/{voice['id']}", json={"name": "Bob"})).json()
    assert changed == {**voice, "name": "Bob"}
    _refused(await http.get(f"{VOICES}/Ada"), 404, "voice_not_found", "voice_id")
    assert (await http.delete(f"{VOICES}/{voice['id']}")).json() == {"id": voice["id"], "deleted": True}
    assert len((await http.get(VOICES)).json()["voices"]) == 2
    _refused(await http.delete(f"{VOICES}/{voice['id']}"), 404, "voice_not_found", "voice_id")


async def test_saved_and_inline_give_the_engine_the_same_bytes(
    http: httpx.AsyncClient, backend: Backend, tmp_path: Path
) -> None:
    voice = (await _save(http, ref_text="Good day.")).json()
    inline = await ReferenceVoices(backend).conditioning(_sample())
    (kept,) = (tmp_path / "voices").glob("*.safetensors")
    assert kept.read_bytes() == inline.to_bytes()
    other = ReferenceVoices(backend)
    async with _client(backend) as restarted:  # reads what was saved
        for named in (voice["id"], "Ada"):
            answer = await restarted.post(SPEECH, json={"input": "Hello.", "voice": named, "stream": False, "seed": 1})
            assert answer.status_code == 200
            request = backend.requests[-1]
            assert request.voice is None and request.conditioning is not None
            assert request.conditioning.to_bytes() == (await other.conditioning(_sample())).to_bytes()
            assert request.prompt_text == "Good day."


@pytest.mark.parametrize(
    ("wanted", "prompt_text", "instructions"),
    [
        ({}, "Good day.", None),
        ({"task_type": "zero_shot"}, "Good day.", None),
        ({"task_type": "cross_lingual"}, None, None),
        ({"instructions": "Whisper."}, None, "Whisper."),
    ],
)
async def test_a_saved_voice_is_spoken_in_every_mode_and_stays_as_it_is(
    http: httpx.AsyncClient,
    backend: Backend,
    tmp_path: Path,
    wanted: dict[str, str],
    prompt_text: str | None,
    instructions: str | None,
) -> None:
    await _save(http, ref_text="Good day.")
    before = {path: path.read_bytes() for path in (tmp_path / "voices").iterdir()}
    answer = await http.post(SPEECH, json={"input": "Hello.", "voice": "Ada", "stream": False, **wanted})
    assert answer.status_code == 200, answer.text
    request = backend.requests[-1]
    assert (request.prompt_text, request.instructions) == (prompt_text, instructions)
    assert {path: path.read_bytes() for path in (tmp_path / "voices").iterdir()} == before


async def test_a_preview_is_a_short_sentence_in_that_voice(http: httpx.AsyncClient, backend: Backend) -> None:
    voice = (await _save(http)).json()
    for name in (voice["id"], "cosy"):
        answer = await http.post(f"{VOICES}/{name}/preview")
        assert answer.status_code == 200 and answer.headers["content-type"] == "audio/wav"
        assert soundfile.info(io.BytesIO(answer.content)).frames > 0
        assert "Hello" in backend.requests[-1].segments[0]
    assert [request.voice for request in backend.requests] == [None, "cosy"]
    answer = await http.post(f"{VOICES}/cosy/preview", json={"text": "Something else.", "seed": 7})
    assert (answer.headers["x-seed"], backend.requests[-1].segments) == ("7", ("Something else.",))
    _refused(await http.post(f"{VOICES}/nobody/preview"), 404, "voice_not_found", "voice_id")
    _refused(await http.post(f"{VOICES}/cosy/preview", json={"text": "x" * 201}), 400, "invalid_value", "text")
    backend.error, backend.fail_after = TextError("no_speakable_text", "There is nothing to say."), 0
    _refused(await http.post(f"{VOICES}/cosy/preview", json={"text": "?"}), 400, "no_speakable_text", "text")


async def test_a_sample_that_is_trimmed_is_encoded_without_its_silence(
    http: httpx.AsyncClient, backend: Backend
) -> None:
    silent = io.BytesIO()
    samples, rate = soundfile.read(io.BytesIO(_sample()))
    soundfile.write(silent, np.concatenate([np.zeros(3 * rate), samples, np.zeros(3 * rate)]), rate, format="WAV")
    assert (await _save(http, "whole", silent.getvalue())).status_code == 201
    assert (await _save(http, "trimmed", silent.getvalue(), trim="true")).status_code == 201
    whole, trimmed = (len(samples) / rate for samples, rate in backend.encoded)
    assert whole == 8.0 and trimmed < 4.0


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"name": None}, 400, "missing_parameter", "name"),
        ({"consent": None}, 400, "missing_parameter", "consent"),
        ({"consent": "  "}, 400, "missing_parameter", "consent"),
        ({"consent": "x" * 2001}, 400, "invalid_value", "consent"),
        ({"name": "a\nb"}, 400, "invalid_value", "name"),
        ({"name": "inline"}, 400, "invalid_value", "name"),
        ({"name": "cosy"}, 409, "voice_is_preset", "name"),
        ({"name": "cosy", "overwrite": "true"}, 409, "voice_is_preset", "name"),
        ({"ref_text": "x" * 2001}, 400, "invalid_value", "ref_text"),
        ({"description": "x" * 1001}, 400, "invalid_value", "description"),
        ({"description": "x" * 70_000}, 400, "invalid_value", "description"),
        ({"trim": "maybe"}, 422, "invalid_type", "trim"),
        ({"model": "another"}, 404, "model_not_found", "model"),
        ({"volume": "11"}, 400, "unknown_parameter", "volume"),
        ({"audio_sample": "text"}, 422, "invalid_type", "audio_sample"),
        ({"sample": b""}, 400, "missing_parameter", "audio_sample"),
        ({"sample": b"no sound"}, 400, "ref_audio_invalid", "audio_sample"),
        ({"sample": _sample(0.5)}, 400, "ref_audio_too_short", "audio_sample"),
        ({"sample": _sample(31)}, 400, "ref_audio_too_long", "audio_sample"),
        ({"sample": b"RIFF" + bytes(11 * 2**20)}, 400, "ref_audio_too_large", "audio_sample"),
        ({"sample": _sample(40), "trim": "true", "ref_text": "Good day."}, 400, "ref_audio_too_long", "audio_sample"),
        ({"sample": bytes(17 * 2**20)}, 413, "payload_too_large", None),
    ],
)
async def test_forms_that_are_refused(
    http: httpx.AsyncClient, tmp_path: Path, fields: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    _refused(await _save(http, **fields), status, code, param)
    assert list((tmp_path / "voices").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("application/json", b"{}", "invalid_form"),
        ("multipart/form-data", b"", "invalid_form"),
        ("multipart/form-data; boundary=x", b"", "invalid_form"),
        (f"multipart/form-data; boundary={'x' * 300}", b"", "invalid_form"),
        ("multipart/form-data; boundary=x", b"nothing of the kind", "invalid_form"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nno header\r\n--x--\r\n", "invalid_form"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nA',
            "invalid_form",
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\r\n--x--\r\n',
            "input_not_utf8",
        ),
        (
            "multipart/form-data; boundary=x",
            2 * b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nA\r\n' + b"--x--\r\n",
            "invalid_value",
        ),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"A: b\r\n" * 100 + b"\r\n", "invalid_form"),
    ],
)
async def test_bodies_that_are_no_form(http: httpx.AsyncClient, kind: str, body: bytes, code: str) -> None:
    answer = await http.post(VOICES, content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


async def test_names_are_unique_and_presets_stay(http: httpx.AsyncClient) -> None:
    ada = (await _save(http)).json()
    _refused(await _save(http), 409, "voice_exists", "name")
    replaced = await _save(http, sample=_sample(3.0), overwrite="true")
    assert replaced.status_code == 201 and replaced.json()["id"] == ada["id"]
    assert replaced.json()["consent_id"] != ada["consent_id"]
    bob = (await _save(http, "Bob")).json()
    _refused(await http.patch(f"{VOICES}/{bob['id']}", json={"name": "Ada"}), 409, "voice_exists", "name")
    _refused(await http.patch(f"{VOICES}/{bob['id']}", json={"name": "cosy"}), 409, "voice_is_preset", "name")
    _refused(await http.patch(f"{VOICES}/{bob['id']}", json={"sound": "x"}), 400, "unknown_parameter", "sound")
    _refused(await http.patch(f"{VOICES}/cosy", json={"name": "x"}), 409, "voice_is_preset", "voice_id")
    _refused(await http.delete(f"{VOICES}/cosy"), 409, "voice_is_preset", "voice_id")
    for path in ("..%2F..%2Fetc%2Fpasswd", "%00", "x" * 5000):
        assert (await http.get(f"{VOICES}/{path}")).status_code == 404


async def test_a_voice_of_another_model_is_listed_as_not_usable(http: httpx.AsyncClient, tmp_path: Path) -> None:
    other = store(tmp_path / "voices").create("Eve", conditioning(), consent=CONSENT)
    await _save(http)
    by_id = {voice["id"]: voice for voice in (await http.get(VOICES)).json()["voices"]}
    assert (by_id[other.id]["usable"], by_id[other.id]["supported_modes"]) == (False, [])
    assert "another model" in by_id[other.id]["unusable_because"]
    names = [voice["name"] for voice in (await http.get(VOICES, params={"model": "tiny"})).json()["voices"]]
    assert names == ["cosy", "other", "Ada"]
    assert (await http.get(VOICES, params={"model": "another"})).json() == {"voices": []}
    answer = await http.post(SPEECH, json={"input": "Hello.", "voice": "Eve"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voice_not_usable")


async def test_who_names_no_voice_is_told_where_all_are_listed(http: httpx.AsyncClient) -> None:
    assert "GET /v1/audio/voices" in await _no_voice(http)


async def _no_voice(http: httpx.AsyncClient) -> str:
    answer = await http.post(SPEECH, json={"input": "Hello.", "voice": "nobody"})
    _refused(answer, 404, "voice_not_found", "voice")
    return answer.json()["error"]["message"]


async def test_without_a_folder_nothing_is_kept_and_presets_speak(backend: Backend) -> None:
    async with _client(backend) as http:
        _refused(await _save(http), 501, "voice_store_off")
        _refused(await http.delete(f"{VOICES}/Ada"), 501, "voice_store_off")
        _refused(await http.get(f"{VOICES}/Ada"), 404, "voice_not_found", "voice_id")
        assert "GET /v1/audio/voices" not in await _no_voice(http)
        assert len((await http.get(VOICES)).json()["voices"]) == 2
        body = {"name": "towns", "pronunciations": [{"text": "Reading", "replace": "redding"}]}
        _refused(await http.post(DICTIONARIES, json=body), 501, "voice_store_off")
        assert (await http.get(DICTIONARIES)).json() == {"dictionaries": []}


async def test_a_dictionary_is_kept_seen_by_others_applied_and_deleted(
    http: httpx.AsyncClient, backend: Backend, tmp_path: Path
) -> None:
    entries = [{"text": "Reading", "replace": "redding"}, {"text": "tomato", "cmu": "T AH0 M AA1 T OW2"}]
    saved = await http.post(DICTIONARIES, json={"name": "towns", "pronunciations": entries})
    assert saved.status_code == 201
    dictionary = saved.json()
    assert {key: dictionary[key] for key in ("name", "entries")} == {"name": "towns", "entries": 2}
    async with _client(backend) as restarted:
        assert (await restarted.get(DICTIONARIES)).json() == {"dictionaries": [dictionary]}
        shown = (await restarted.get(f"{DICTIONARIES}/{dictionary['id']}")).json()
        assert shown == {**dictionary, "pronunciations": entries}
        wanted = {"input": "Hello.", "stream": False, "pronunciation_dictionary_ids": [dictionary["id"], "towns"]}
        assert (await restarted.post(SPEECH, json=wanted)).status_code == 200
    assert [entry.text for entry in backend.frontend.options.pronunciations] == ["Reading", "tomato"] * 2
    _refused(
        await http.post(DICTIONARIES, json={"name": "towns", "pronunciations": entries}),
        409,
        "dictionary_exists",
        "name",
    )
    answer = await http.post(DICTIONARIES, json={"name": "towns", "pronunciations": entries[:1], "overwrite": True})
    assert (answer.json()["id"], answer.json()["entries"]) == (dictionary["id"], 1)
    assert (await http.delete(f"{DICTIONARIES}/towns")).json() == {"id": dictionary["id"], "deleted": True}
    _refused(await http.get(f"{DICTIONARIES}/towns"), 404, "dictionary_not_found", "dictionary_id")
    _refused(await http.post(SPEECH, json=wanted), 404, "dictionary_not_found", "pronunciation_dictionary_ids")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "x"}, 400, "missing_parameter"),
        ({"name": "x", "pronunciations": []}, 400, "invalid_value"),
        ({"name": "x", "pronunciations": [{"text": "a", "replace": "b"}] * 10_001}, 400, "invalid_value"),
        ({"name": "x", "pronunciations": [{"text": "a"}]}, 400, "invalid_pronunciation"),
        ({"name": "x", "pronunciations": [{"text": "a", "replace": "b", "c": "d"}]}, 400, "unknown_parameter"),
        ({"name": "\n", "pronunciations": [{"text": "a", "replace": "b"}]}, 400, "invalid_value"),
        ({"name": "x", "pronunciations": "y"}, 422, "invalid_type"),
    ],
)
async def test_dictionaries_that_are_refused(
    http: httpx.AsyncClient, tmp_path: Path, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await http.post(DICTIONARIES, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert list((tmp_path / "voices").iterdir()) == []


async def test_a_dictionary_that_is_damaged_is_skipped(http: httpx.AsyncClient, tmp_path: Path) -> None:
    entries = [{"text": "Reading", "replace": "redding"}]
    for name in ("one", "two"):
        await http.post(DICTIONARIES, json={"name": name, "pronunciations": entries})
    path = next(path for path in (tmp_path / "voices").glob("*.json") if json.loads(path.read_text())["name"] == "one")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pronunciations": [{"text": "nothing said of it"}]}))
    async with _client(Backend()) as restarted:
        assert [entry["name"] for entry in (await restarted.get(DICTIONARIES)).json()["dictionaries"]] == ["two"]


async def test_what_another_process_saves_is_spoken_with_within_seconds(
    http: httpx.AsyncClient, backend: Backend, tmp_path: Path
) -> None:
    assert len((await http.get(VOICES)).json()["voices"]) == 2

    def save_elsewhere() -> bool:
        voices = VoiceStore.from_environment()
        return voices is not None and voices.create("Ada", conditioning(1), consent=CONSENT).name == "Ada"

    assert in_child(save_elsewhere) == 0
    await asyncio.sleep(2)
    answer = await http.post(SPEECH, json={"input": "Hello.", "voice": "Ada", "stream": False})
    assert answer.status_code == 200


async def test_every_route_takes_the_same_names_of_the_model(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERENCE_SERVICE_NAME", "my-tts")
    for number, name in enumerate(("my-tts", "tiny", "cosyvoice2", "cosyvoice-2")):
        assert (await _save(http, f"Ada {number}", model=name)).status_code == 201
        assert (await http.post(SPEECH, json={"input": "Hello.", "model": name})).status_code == 200
        assert len((await http.get(VOICES, params={"model": name})).json()["voices"]) == 3 + number


async def test_writers_that_wait_for_the_folder_keep_no_stream_waiting(http: httpx.AsyncClient, tmp_path: Path) -> None:
    await _save(http)
    with (tmp_path / "voices" / ".lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writers = [asyncio.create_task(http.patch(f"{VOICES}/Ada", json={"description": str(n)})) for n in range(40)]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await asyncio.wait_for(asyncio.to_thread(time.sleep, 0), 5)
        answer = await http.post(SPEECH, json={"input": "Hello.", "voice": "Ada", "stream": False})
        assert answer.status_code == 200
        assert time.monotonic() - began < 3
        assert not any(writer.done() for writer in writers)
    assert {(await writer).status_code for writer in writers} == {200}


async def test_all_dictionaries_together_have_only_so_many_entries(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionaries, "MAX_ENTRIES", 3)
    entries = [{"text": "Reading", "replace": "redding"}, {"text": "Bath", "replace": "barth"}]

    async def save(name: str, count: int) -> httpx.Response:
        body = {"name": name, "pronunciations": entries[:count], "overwrite": True}
        return await http.post(DICTIONARIES, json=body)

    assert (await save("one", 2)).status_code == 201
    _refused(await save("two", 2), 409, "too_many_dictionaries")
    assert [(await save("one", 1)).status_code, (await save("two", 2)).status_code] == [201, 201]


class Slow(Backend):
    """Encodes when it is told to, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.failing = False

    async def encode(self, samples: bytes, sample_rate: int) -> Conditioning:
        voice = await super().encode(samples, sample_rate)
        await self.go.wait()
        if self.failing:
            raise RequestError("overloaded", "Too much at once.", 429)
        return voice


async def test_one_reference_sent_by_many_at_once_is_encoded_once() -> None:
    backend = Slow()
    voices = ReferenceVoices(backend)
    waiting = [asyncio.create_task(voices.conditioning(_sample())) for _ in range(5)]
    while not backend.encoded:
        await asyncio.sleep(0.01)
    waiting[0].cancel()
    backend.go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert len({id(voice) for voice in found[1:]}) == 1
    assert len(backend.encoded) == 1


async def test_a_reference_that_could_not_be_encoded_is_tried_again() -> None:
    backend = Slow()
    voices = ReferenceVoices(backend)
    backend.go.set()
    backend.failing = True
    with pytest.raises(RequestError):
        await voices.conditioning(_sample())
    backend.failing = False
    assert len((await voices.conditioning(_sample())).prompt_tokens) == 25


async def test_large_references_are_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    for name in ("parse_data_url", "_content_hash", "decode_reference"):
        work = getattr(references, name)

        def recorded(*given: Any, work: Any = work) -> Any:
            threads.append(threading.current_thread().name)
            return work(*given)

        monkeypatch.setattr(references, name, recorded)
    url = "data:audio/wav;base64," + base64.b64encode(_sample()).decode()
    await ReferenceVoices(Backend()).conditioning(url)
    assert len(threads) == 3 and all(name.startswith("decoder") for name in threads)
