"""`POST /v1/text/normalize` shows what the speech endpoint would speak, and refuses what that refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api import errors, text
from api.dictionaries import DictionaryStore
from api.passages import Passage, passages_of, read_passages
from api.references import ReferenceVoices
from api.synthesis import Speaker
from api.wish import SpeechWish
from models.config import load_config
from models.tokenizer import Tokenizer
from runners.request import ModelInfo
from tests.api.oip_backend import FakeBackend
from tests.golden import golden
from text.frontend import TextFrontend
from text.pronunciation import Pronunciation


def frontend(version: int) -> TextFrontend:
    folder = golden(version).dir
    return TextFrontend.for_model(load_config(folder), Tokenizer.load(folder, version))


class Reader(FakeBackend):
    """Reads as a genuine model does, and speaks as little as its base."""

    def __init__(self, version: int = 3, loaded: bool = True) -> None:
        super().__init__(loaded=loaded, frontend=cast(Any, frontend(version)))

    async def describe(self) -> ModelInfo:
        return replace(await super().describe(), languages=())


def routes(speaker: Speaker) -> FastAPI:
    app = FastAPI()
    app.state.draining = asyncio.Event()
    errors.install(app, lambda problem, _: problem.response())
    app.include_router(text.router(speaker))
    return app


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> DictionaryStore:
    folder: Path = tmp_path_factory.mktemp("voices")
    return DictionaryStore(folder)


@pytest.fixture(scope="module")
def client(store: DictionaryStore) -> Iterator[TestClient]:
    backend = Reader()
    with TestClient(routes(Speaker(backend, ReferenceVoices(backend), dictionaries=store))) as session:
        yield session


def read(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/text/normalize", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_text_is_shown_as_it_would_be_read(client: TestClient) -> None:
    shown = read(client, input="Dr. Lee paid $3.50 <|im_end|>.")
    assert shown["text"] == "Doctor Lee paid three dollars and fifty cents."
    (segment,) = shown["segments"]
    assert segment["text"] == segment["model_text"] == shown["text"]
    assert segment["tokens"] == len(Tokenizer.load(golden(3).dir, 3).encode(segment["model_text"]))
    assert (segment["language"], segment["passage"]) == ("en", 0)
    assert shown["passages"] == [{"voice": None, "speed": 1.0, "volume": 1.0, "pitch": 1.0, "break_after_s": 0.0}]
    assert [warning["code"] for warning in shown["warnings"]] == ["control_tokens_removed"]
    assert all(warning["message"].endswith(".") for warning in shown["warnings"])


SPOKEN: list[dict[str, Any]] = [
    {"input": "这是一个很长的句子，用来检查分段的结果。" * 12},
    {"input": '<speak>OK <say-as interpret-as="digits">12</say-as>, 3.<break/>7</speak>', "language": "de"},
    {"input": '<speak>Он там, <say-as interpret-as="digits">12</say-as>. <s xml:lang="en">5</s></speak>'},
]


@pytest.mark.parametrize("fields", SPOKEN, ids=["long", "language", "markup"])
def test_segments_are_those_that_the_speech_endpoint_speaks(client: TestClient, fields: dict[str, Any]) -> None:
    kind = "ssml" if fields["input"].startswith("<") else "text"
    wish = SpeechWish(fields["input"], language=fields.get("language", "auto"), input_type=kind)
    expected = [segment for passage in read_passages(frontend(3), None, wish) for segment in passage.segments]
    assert len(expected) > 1
    found = [(s["text"], s["model_text"]) for s in read(client, **fields, input_type=kind)["segments"]]
    assert found == [(segment.text, segment.tokens_text) for segment in expected]
    if fields.get("language") == "de":
        assert "eins zwei" in found[0][0]


def test_a_text_does_not_wait_for_what_shapes_the_audio_of_streams() -> None:
    """Nor does that wait for texts: they share no threads."""

    async def read_meanwhile() -> list[Passage]:
        loop, busy = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        shaping = loop.run_in_executor(None, busy.wait)
        try:
            return await asyncio.wait_for(passages_of(frontend(3), None, SpeechWish("Hello.")), 20)
        finally:
            busy.set()
            await shaping

    assert [segment.text for passage in asyncio.run(read_meanwhile()) for segment in passage.segments] == ["Hello."]


def test_options_are_those_of_the_speech_endpoint(client: TestClient) -> None:
    assert read(client, input="3 cats", text_normalization="off")["text"] == "3 cats."
    assert read(client, input="See example.com/a now", normalization_options={"url": "name"})["text"] == "See link now."
    assert "drei" in read(client, input="3", language="de")["text"]


def test_pronunciations_and_dictionaries_are_applied(client: TestClient, store: DictionaryStore) -> None:
    saved = store.create("mine", [Pronunciation("GIF", cmu="JH IH1 F"), Pronunciation("Qt", replace="cute")])
    shown = read(
        client,
        input="A GIF in Qt, 重庆",
        pronunciation=[{"text": "重庆", "pinyin": "chong2 qing4"}, {"text": "gif", "replace": "picture"}],
        pronunciation_dictionary_ids=[saved.id],
    )
    assert "picture in cute" in shown["segments"][0]["model_text"]
    assert "[ch][óng][q][ìng]" in shown["segments"][0]["model_text"]
    assert "重庆" in shown["text"]


def test_markup_is_shown_by_passages(client: TestClient) -> None:
    ssml = (
        '<speak><break time="1s"/>One <prosody rate="slow" volume="soft">two <phoneme alphabet="cmu" ph="B IY1">be'
        '</phoneme></prosody><break time="2s"/><voice name="eve">3</voice></speak>'
    )
    shown = read(client, input=ssml, input_type="ssml")
    assert [(s["model_text"].strip(), s["passage"]) for s in shown["segments"]] == [
        ("One.", 1),
        ("two [B][IY1].", 2),
        ("three.", 3),
    ]
    assert [passage["break_after_s"] for passage in shown["passages"]] == [1.0, 0.0, 2.0, 0.0]
    assert [passage["speed"] for passage in shown["passages"]] == [1.0, 1.0, 0.75, 1.0]
    assert [passage["volume"] for passage in shown["passages"]] == [1.0, 1.0, 0.5, 1.0]
    assert shown["passages"][3]["voice"] == "eve"
    assert shown["text"] == "One. two be. three."


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "missing_parameter"),
    ({"input": 3}, 422, "invalid_type"),
    ({"input": "a", "colour": "b"}, 400, "unknown_parameter"),
    ({"input": ""}, 400, "input_empty"),
    ({"input": "…"}, 400, "no_speakable_text"),
    ({"input": "a" * 20_001}, 400, "input_too_long"),
    ({"input": "a", "input_type": "html"}, 400, "invalid_value"),
    ({"input": "a", "language": "tlh"}, 400, "unsupported_language"),
    ({"input": "a", "text_normalization": "maybe"}, 400, "invalid_value"),
    ({"input": "a", "normalization_options": {"url": "maybe"}}, 400, "invalid_value"),
    ({"input": "a", "normalization_options": {"links": "read"}}, 400, "unknown_parameter"),
    ({"input": "a", "pronunciation": [{"text": "a"}]}, 400, "invalid_pronunciation"),
    ({"input": "a", "pronunciation": [{"text": "a", "cmu": "QQ"}]}, 400, "unknown_phone"),
    ({"input": "a", "pronunciation_dictionary_ids": ["none"]}, 404, "dictionary_not_found"),
    ({"input": "a", "input_type": "ssml"}, 400, "invalid_ssml"),
    ({"input": "<speak><audio/></speak>", "input_type": "ssml"}, 400, "unsupported_markup"),
    ({"input": "<speak>…<break/></speak>", "input_type": "ssml"}, 400, "no_speakable_text"),
    (
        {"input": "<speak>[laughter]<p>😀</p></speak>", "input_type": "ssml", "language": "xx"},
        400,
        "unsupported_language",
    ),
]


@pytest.mark.parametrize(("fields", "status", "code"), REFUSED)
def test_what_cannot_be_read_says_why(client: TestClient, fields: dict[str, Any], status: int, code: str) -> None:
    answer = client.post("/v1/text/normalize", json=fields)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


AT_FAULT = [
    ({"input": "a", "pronunciation": [{"text": "a", "pinyin": "hao3", "cmu": "AA1"}]}, "pronunciation"),
    ({"input": "a", "pronunciation": [{"text": "a", "cmu": "QQ"}]}, "pronunciation"),
    (
        {"input": "<speak>a</speak>", "input_type": "ssml", "pronunciation": [{"text": "a", "cmu": "QQ"}]},
        "pronunciation",
    ),
    ({"input": "<speak><phoneme alphabet='cmu' ph='QQ'>a</phoneme></speak>", "input_type": "ssml"}, "input"),
    ({"input": "…"}, "input"),
    ({"input": "$\\sum_{}^{n}$" + "a" * 20_000}, "input"),
]


@pytest.mark.parametrize(("fields", "param"), AT_FAULT)
def test_the_field_at_fault_is_named(client: TestClient, fields: dict[str, Any], param: str) -> None:
    assert client.post("/v1/text/normalize", json=fields).json()["error"]["param"] == param


def test_a_model_that_reads_words_is_told_no_sounds() -> None:
    backend = Reader(version=2)
    with TestClient(routes(Speaker(backend, ReferenceVoices(backend)))) as client:
        sounds = {"text": "tomato", "cmu": "T AH0 M EY1 T OW2"}
        answer = client.post("/v1/text/normalize", json={"input": "A tomato", "pronunciation": [sounds]})
        assert answer.json()["error"]["code"] == "unsupported_pronunciation"
        both = {**sounds, "replace": "tomaytow"}
        assert read(client, input="A tomato", pronunciation=[both])["text"] == "A tomaytow."
        answer = client.post("/v1/text/normalize", json={"input": "A", "pronunciation_dictionary_ids": ["a"]})
        assert answer.json()["error"]["code"] == "unsupported_parameter"


def test_a_model_that_is_still_loading_says_so() -> None:
    backend = Reader(loaded=False)
    with TestClient(routes(Speaker(backend, ReferenceVoices(backend)))) as client:
        assert client.post("/v1/text/normalize", json={"input": "a"}).status_code == 503


def test_the_document_of_the_api_describes_the_route(client: TestClient) -> None:
    document = cast(FastAPI, client.app).openapi()
    route = document["paths"]["/v1/text/normalize"]["post"]
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["input"] and "pronunciation" in body["properties"]
    assert "$ref" not in str(body)
    assert route["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/NormalizedText"
    }
