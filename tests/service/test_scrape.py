"""A scrape of the real service has every series that dashboard, alerts, scaling and the rollout read, and adds up."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Iterable

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect

from launch.server import Server
from tests.kserve import promql
from tests.kserve.expressions import alerts, dashboard_targets, rollout_queries, scaling_queries
from tests.kserve.metrics import PLATFORM, SCRAPE_LABELS, exported
from tests.service.conftest import recording
from tests.service.live_gauges import until

SPEECH = "/v1/audio/speech"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(server: Server) -> Series:
    """The value of each series by its name and labels."""
    families = text_string_to_metric_families(httpx.get(server.url + "/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def requests(series: Series) -> Counter[tuple[str, str, str]]:
    """cosyserve_requests_total by route, mode and outcome."""
    labels = {key: dict(key[1]) for key in series if key[0] == "cosyserve_requests_total"}
    return Counter(
        {(found["route"], found["mode"], found["outcome"]): int(series[key]) for key, found in labels.items()}
    )


def total(series: Series, name: str) -> float:
    return sum(value for (found, _), value in series.items() if found == name)


def idle(server: Server) -> bool:
    return total(scrape(server), "cosyserve_active_streams") == total(scrape(server), "cosyserve_engine_requests") == 0


async def _session(server: Server) -> None:
    async with connect(server.url.replace("http", "ws") + "/v1/audio/speech/stream") as socket:
        await socket.send(json.dumps({"type": "input.text", "text": "One. Two."}))
        await socket.send(json.dumps({"type": "input.done"}))
        async for message in socket:
            if isinstance(message, str) and json.loads(message)["type"] == "session.done":
                return


@pytest.fixture(scope="module")
def grown(server: Server, http: httpx.Client) -> tuple[Counter[tuple[str, str, str]], Series]:
    """How the requests grew by one of each kind, however it ended; and the scrape after them."""
    until(lambda: idle(server), 30)
    before = requests(scrape(server))
    assert http.post(SPEECH, json={"input": "One sentence, which has a hop and another one."}).status_code == 200
    assert http.post(SPEECH, json={"input": "One.", "stream": False, "response_format": "mp3"}).status_code == 200
    cloned = {"input": "One.", "ref_audio": recording(), "stream": False}
    for status in (200, 200):  # the second one finds the voice
        assert http.post(SPEECH, json=cloned).status_code == status
    assert http.post(SPEECH, json={"input": "One.", "voice": "nobody"}).status_code == 404
    assert http.post(SPEECH, content=b"{").status_code == 400  # nobody worked for it
    assert http.post(SPEECH, json={"input": ""}, headers={"origin": "https://elsewhere.example"}).status_code == 403
    assert http.get(SPEECH).status_code in (404, 405)
    assert http.post("/v1/audio/voices", data={"name": "x"}).status_code == 400
    sample = base64.b64decode(recording().partition(",")[2])
    form = {"name": "Scraped", "consent": "I agree."}
    saved = http.post("/v1/audio/voices", data=form, files={"audio_sample": sample})
    assert saved.status_code == 201, saved.text
    assert http.post(SPEECH, json={"input": "One.", "voice": "Scraped"}).status_code == 200
    assert http.delete(f"/v1/audio/voices/{saved.json()['id']}").status_code == 200
    items = {"items": [{"input": "One."}, {"input": "Two.", "speed": 99}]}
    assert http.post("/v1/audio/speech/batch", json=items).status_code == 200
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["One."]}
    assert http.post("/v2/models/nobody/infer", json={"inputs": [tensor]}).status_code == 404
    with http.stream("POST", SPEECH, json={"input": "A long text that nobody waits for. " * 20}) as stream:
        next(stream.iter_raw())
    asyncio.run(_session(server))
    until(lambda: idle(server), 30)
    after = scrape(server)
    grown = requests(after)
    grown.subtract(before)
    return +grown, after


def test_every_request_is_counted_once_with_its_end(grown: tuple[Counter[tuple[str, str, str]], Series]) -> None:
    assert grown[0] == {
        ("speech", "preset", "ok"): 2,
        ("speech", "cross_lingual", "ok"): 2,
        ("speech", "none", "voice_not_found"): 1,
        ("speech", "none", "invalid_json"): 1,
        ("speech", "none", "origin_not_allowed"): 1,
        ("speech", "none", "not_found"): 1,
        ("speech", "preset", "cancelled"): 1,
        ("voices", "none", "invalid_form"): 1,
        ("voices", "none", "ok"): 2,
        ("speech", "saved", "ok"): 1,
        ("batch", "preset", "ok"): 1,
        ("batch", "none", "invalid_value"): 1,
        ("oip", "none", "model_not_found"): 1,
        ("speech_stream", "preset", "ok"): 2,
    }


def test_idle_gauges_are_zero_and_none_is_negative(grown: tuple[Counter[tuple[str, str, str]], Series]) -> None:
    series = grown[1]
    for name in (
        "cosyserve_active_streams",
        "cosyserve_engine_requests",
        "cosyserve_engine_live_utterances",
        "cosyserve_queue_depth",
        "cosyserve_kv_cache_bytes",
        "cosyserve_prefix_cache_bytes",
    ):
        assert total(series, name) == 0, name
    assert not {key: value for key, value in series.items() if value < 0}


def test_what_was_done_is_seen(grown: tuple[Counter[tuple[str, str, str]], Series]) -> None:
    series = grown[1]

    def steps(stage: str) -> float:
        return series["cosyserve_stage_step_seconds_count", frozenset({("stage", stage)})]

    for stage in ("encode_reference", "prefill", "decode", "flow", "vocoder", "encode_audio"):
        assert 0 < series["cosyserve_stage_step_seconds_sum", frozenset({("stage", stage)})] < 3600, stage
        batch = series["cosyserve_stage_batch_size_sum", frozenset({("stage", stage)})]
        assert batch >= steps(stage) == series["cosyserve_stage_batch_size_count", frozenset({("stage", stage)})] > 0
    assert steps("decode") > steps("flow") >= steps("vocoder")
    assert total(series, "cosyserve_queue_wait_seconds_count") >= 9
    assert total(series, "cosyserve_audio_seconds_total") > 3
    assert total(series, "cosyserve_characters_total") >= len("One.") * 5
    assert total(series, "cosyserve_resident_memory_bytes") > 100e6
    reference = frozenset({("cache", "reference")})
    assert series["cosyserve_voice_cache_hits_total", reference] >= 1
    assert series["cosyserve_voice_cache_misses_total", reference] >= 1
    assert series["cosyserve_voice_cache_bytes", reference] > 1000


def _scraped(series: Series) -> dict[str, frozenset[str]]:
    """The labels of each name, with those that the scrape itself adds."""
    labels: dict[str, frozenset[str]] = {}
    for name, found in series:
        labels[name] = labels.get(name, SCRAPE_LABELS) | {label for label, _ in found}
    return labels


def test_the_scrape_is_what_the_code_declares(grown: tuple[Counter[tuple[str, str, str]], Series]) -> None:
    labels = _scraped(grown[1])
    ours = {name for name in labels if name.startswith("cosyserve_") and not name.endswith("_created")}
    quiet = {name for name in exported() if name not in ours}
    assert ours <= exported().keys()
    assert quiet <= {"cosyserve_audio_underrun_seconds_total", "cosyserve_discontinuous_streams_total"}, quiet
    for name in ours:
        assert labels[name] == exported()[name].labels, name


@pytest.mark.parametrize("source", [alerts, dashboard_targets, scaling_queries, rollout_queries])
def test_every_expression_reads_what_the_service_tells(
    source, grown: tuple[Counter[tuple[str, str, str]], Series]
) -> None:
    labels = {**_scraped(grown[1]), **{name: series.labels for name, series in PLATFORM.items()}}
    # Nobody may have heard silence.
    for name in ("cosyserve_audio_underrun_seconds_total", "cosyserve_discontinuous_streams_total"):
        labels.setdefault(name, exported()[name].labels)
    expressions: Iterable[str] = source()
    for expression in expressions:
        for reading in promql.readings(promql.parse(expression)):
            assert reading.metric in labels, expression
            names = {name for name, _ in reading.matchers}.union(*reading.grouped)
            assert names <= labels[reading.metric], expression
