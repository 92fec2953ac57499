"""What the server answers is what its OpenAPI document says: no field, header or kind of content beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from api.app import create_app
from tests.api.oip_backend import FakeBackend
from tests.service.conftest import recording

SPEECH, VOICES, DICTIONARIES = "/v1/audio/speech", "/v1/audio/voices", "/v1/pronunciation-dictionaries"
SAMPLE = base64.b64decode(recording().partition(",")[2])
SAID = {"input": "One. Two.", "seed": 1}
TIMED = {"timestamp_granularities": ["segment"]}
# Of the way there, not of the answer.
TRANSPORT = {"x-accel-buffering", "x-content-type-options"}


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> dict[str, Any]:
    return http.get("/openapi.json").json()


@pytest.fixture(scope="module")
def saved(http: httpx.Client) -> Iterator[dict[str, str]]:
    """A voice and a dictionary by the names that the paths give their ids."""
    form = {"name": "documented", "consent": "I agree.", "ref_text": "Good day.", "overwrite": "true"}
    voice = http.post(VOICES, data=form, files={"audio_sample": ("a.wav", SAMPLE)}).json()
    entries = [{"text": "Reading", "replace": "redding"}, {"text": "tomato", "cmu": "T AH0 M AA1 T OW2"}]
    words = {"name": "documented", "pronunciations": entries, "overwrite": True}
    yield {"voice_id": voice["id"], "dictionary_id": http.post(DICTIONARIES, json=words).json()["id"]}
    http.delete(f"{VOICES}/{voice['id']}")
    http.delete(f"{DICTIONARIES}/documented")


def closed(part: Any) -> Any:
    """A schema by which no object has a field that is not described."""
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {name: closed(value) for name, value in part.items()}
    return {"additionalProperties": False, **inner} if isinstance(part.get("properties"), dict) else inner


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    assert schema, "nothing is said of it"
    whole = {**closed(schema), "components": {"schemas": closed(document["components"]["schemas"])}}
    jsonschema.Draft202012Validator(whole).validate(value)


def check_content(document: dict[str, Any], told: dict[str, Any], answer: httpx.Response) -> None:
    kind = answer.headers["content-type"].partition(";")[0]
    schema = next(about for name, about in told["content"].items() if name.partition(";")[0] == kind)["schema"]
    if kind == "application/json":
        check(document, schema, answer.json())
    elif kind == "text/event-stream":
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
        assert len(events) > 1
        for event in events:
            check(document, schema, event)
    else:
        assert schema == {"type": "string", "format": "binary"}
        assert answer.content


def check_headers(told: dict[str, Any], answer: httpx.Response) -> None:
    described = {name.lower(): about["schema"]["type"] for name, about in told["headers"].items()}
    own = {name for name in answer.headers if name.startswith("x-") or name in ("location", "server-timing")}
    assert own - TRANSPORT <= described.keys()
    for name in own & described.keys():
        assert described[name] == "string" or int(answer.headers[name]) >= 0
    assert "x-request-id" in own


@pytest.mark.parametrize(
    ("method", "path", "status", "given"),
    [
        ("POST", SPEECH, 200, {"json": {**SAID, "response_format": "mp3"}}),
        ("POST", SPEECH, 200, {"json": {**SAID, "stream": False}}),
        ("POST", SPEECH, 200, {"json": {**SAID, "stream": False, **TIMED}}),
        ("POST", SPEECH, 200, {"json": {**SAID, "stream_format": "sse"}}),
        ("POST", SPEECH, 200, {"json": {**SAID, "stream_format": "sse", **TIMED}}),
        ("POST", SPEECH, 400, {"json": {"speed": 2.0}}),
        ("POST", SPEECH, 404, {"json": {**SAID, "voice": "nobody"}}),
        ("POST", f"{SPEECH}/batch", 200, {"json": {"items": [SAID, {**SAID, **TIMED}, {"input": ""}]}}),
        (
            "POST",
            "/v1/audio/voice-conversion",
            200,
            {"data": {"voice": "documented"}, "files": {"source_audio": SAMPLE}},
        ),
        ("POST", "/v1/text/normalize", 200, {"json": {"input": "It is 9:05 😀."}}),
        ("GET", VOICES, 200, {}),
        ("GET", f"{VOICES}/{{voice_id}}", 200, {}),
        ("PATCH", f"{VOICES}/{{voice_id}}", 200, {"json": {"description": "warm"}}),
        ("POST", f"{VOICES}/{{voice_id}}/preview", 200, {"json": {"text": "Hello."}}),
        ("GET", DICTIONARIES, 200, {}),
        ("GET", f"{DICTIONARIES}/{{dictionary_id}}", 200, {}),
    ],
)
def test_an_answer_is_as_it_is_documented(
    http: httpx.Client,
    document: dict[str, Any],
    saved: dict[str, str],
    method: str,
    path: str,
    status: int,
    given: dict[str, Any],
) -> None:
    answer = http.request(method, path.format(**saved), **given)
    assert answer.status_code == status, answer.text
    answers = document["paths"][path][method.lower()]["responses"]
    told = answers.get(str(status), answers["default"])
    check_content(document, told, answer)
    check_headers(told, answer)


def test_what_is_saved_and_deleted_is_as_it_is_documented(http: httpx.Client, document: dict[str, Any]) -> None:
    words = {"name": "kept shortly", "pronunciations": [{"text": "a", "replace": "b"}]}
    form = {"name": "kept shortly", "consent": "I agree."}
    for path, one, given in (
        (DICTIONARIES, "dictionary_id", {"json": words}),
        (VOICES, "voice_id", {"data": form, "files": {"audio_sample": ("a.wav", SAMPLE)}}),
    ):
        made = http.post(path, **given)
        told = document["paths"][path]["post"]["responses"]["201"]
        assert made.status_code == 201, made.text
        check_content(document, told, made)
        check_headers(told, made)
        assert made.headers["location"] == f"{path}/{made.json()['id']}"
        deleted = http.delete(made.headers["location"])
        told = document["paths"][f"{path}/{{{one}}}"]["delete"]["responses"]["200"]
        check_content(document, told, deleted)
        check_headers(told, deleted)


async def test_a_speech_that_fails_ends_in_a_documented_event(document: dict[str, Any]) -> None:
    app = httpx.ASGITransport(create_app(FakeBackend(fail_after=1)))
    async with httpx.AsyncClient(transport=app, base_url="http://server") as client:
        answer = await client.post(SPEECH, json={**SAID, "stream_format": "sse"})
    check_content(document, document["paths"][SPEECH]["post"]["responses"]["200"], answer)
    last = json.loads(answer.text.splitlines()[-2][6:])
    assert last["type"] == "speech.audio.error"
    schema = {"$ref": "#/components/schemas/SpeechEvent"}
    for wrong in ({**last, "more": 1}, {"type": last["type"]}, {**last, "type": "speech.audio.done"}):
        with pytest.raises(jsonschema.ValidationError):
            check(document, schema, wrong)
