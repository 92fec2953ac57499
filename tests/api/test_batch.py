"""`POST /v1/audio/speech/batch`: answers in order, each item succeeding or failing alone."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.auth import KeyRing
from api.keyring import entry, new_key
from api.limits import KeyLimits
from api.synthesis import Room
from runners.frames import Frame, FrameKind
from runners.request import RequestError, SpeechRequest
from tests.api.oip_backend import HOP, HOPS, FakeBackend

BATCH = "/v1/audio/speech/batch"


class Busy(FakeBackend):
    """Answers later texts first, refuses "full", and notes how many it spoke at once."""

    most = 0

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        if request.segments == ("full",):
            raise RequestError("overloaded", "The engine is full.", 429)
        async for frame in super().stream(request):
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.001 * (10 - len(self.requests)))
            yield frame


class Long(FakeBackend):
    """Speaks as many times its usual hops as there are segments."""

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[Frame, None]:
        for _ in request.segments[1:]:
            async for frame in super().stream(request):
                if frame.kind is FrameKind.AUDIO:
                    yield frame
                await asyncio.sleep(0)
        async for frame in super().stream(request):
            yield frame


async def _post(backend: FakeBackend, body: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(backend)), base_url="http://server") as http:
        return await http.post(BATCH, json=body)


async def test_results_are_in_order_with_defaults_and_overrides() -> None:
    backend = Busy()
    items = [{"input": f"Text {number}.", "seed": number} for number in range(9)]
    items[3] |= {"voice": "other", "response_format": "wav", "timestamp_granularities": ["segment"]}
    answer = await _post(backend, {"items": items, "response_format": "pcm", "speed": 2.0})
    told = answer.json()
    assert (told["total"], told["succeeded"], told["failed"]) == (9, 9, 0)
    assert [result["index"] for result in told["results"]] == list(range(9))
    assert [result["seed"] for result in told["results"]] == list(range(9))
    sizes = [len(base64.b64decode(result["audio_data"])) for result in told["results"]]
    assert sizes == [2 * HOP * HOPS + (44 if number == 3 else 0) for number in range(9)]
    assert told["results"][3]["segments"][0]["text"] == "Text 3."
    assert "segments" not in told["results"][2]
    assert {request.speed for request in backend.requests} == {2.0}
    assert [request.segments for request in backend.requests if request.voice == "other"] == [("Text 3.",)]
    assert 1 < backend.most <= 4


async def test_an_item_fails_alone() -> None:
    items: list[Any] = [
        {"input": "Fine."},
        {"input": " "},
        {"input": "Fine.", "voice": "nobody"},
        {"input": "full"},
        {"input": "Fine.", "colour": "red"},
        {"voice": "cosy"},
        {"input": "Fine.", "voice": None},
    ]
    told = (await _post(Busy(), {"items": items, "voice": "other"})).json()
    assert (told["succeeded"], told["failed"]) == (2, 5)
    errors = [result["error"]["code"] if result["status"] == "error" else None for result in told["results"]]
    assert errors == [
        None,
        "input_empty",
        "voice_not_found",
        "overloaded",
        "unknown_parameter",
        "missing_parameter",
        None,
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_parameter"),
        ({"items": []}, 400, "invalid_value"),
        ({"items": [{"input": "Hi."}] * 33}, 400, "invalid_value"),
        ({"items": ["Hi."]}, 422, "invalid_type"),
        ({"items": [{"input": "Hi."}], "input": "Hi."}, 400, "unknown_parameter"),
        ({"items": [{"input": "Hi."}], "colour": "red"}, 400, "unknown_parameter"),
        ({"items": [{"input": "Hi."}], "speed": "fast"}, 422, "invalid_type"),
        ([], 422, "invalid_type"),
    ],
)
async def test_a_bad_batch_is_refused_as_a_whole(body: Any, status: int, code: str) -> None:
    backend = Busy()
    answer = await _post(backend, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert not backend.requests


async def test_items_share_one_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.batch.Room", partial(Room, 3 * HOP * HOPS))
    answer = (await _post(Long(), {"items": [{"input": "Twice / as long."}, {"input": "Short."}]})).json()
    assert answer["succeeded"] == 2
    answer = (await _post(Long(), {"items": [{"input": " / ".join("abcd")}]})).json()
    refusal = answer["results"][0]["error"]
    assert refusal["code"] == "answer_too_long"
    assert "send fewer items" in refusal["message"]


async def test_each_item_is_one_request_of_its_keys_limit() -> None:
    key = new_key()
    keys = KeyRing(f"{entry('a', key)} requests_per_minute=3", None, KeyLimits())
    app = create_app(FakeBackend(), keys)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as http:
        items = [{"input": "Hi."}] * 5
        answer = await http.post(BATCH, json={"items": items}, headers={"Authorization": f"Bearer {key}"})
    codes = [result.get("error", {}).get("code") for result in answer.json()["results"]]
    assert codes.count(None) == 3
    assert codes.count("rate_limited") == 2
