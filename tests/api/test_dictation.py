"""`policy: model` of the WebSocket route: words go to the engine as they are written, in requests of bounded size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from api import dictation
from models.config import load_config
from models.tokenizer import Tokenizer
from runners.frames import Frame, FrameKind
from runners.request import INCREMENTAL_TOKENS, ModelInfo, RequestError, SpeechRequest
from tests.api.live_server import Session, comes_true, live_server
from tests.api.oip_backend import FakeBackend, made
from tests.golden import golden
from text.errors import TextError
from text.frontend import TextFrontend
from text.incremental import IncrementalText

PROSE = [
    "I was born on May 3, 1984 in New York and moved to London in the year 2001 with 3 kg of luggage.",
    "Dr. Lee paid $3.50 at 9:05 p.m. on Monday. “Really?” she asked. See https://a.b/c.d?e=1 for the rest of it.",
    "In chapter IV, NASA and the U.S. government sent 3.5 million dollars, i.e. much.\n\nThe **very bold words**.",
    "Das Treffen findet am 3. Mai um 14:30 Uhr statt, und wir erwarten 25 Personen aus ganz Europa.",
    "Le train part à 14h30 de la gare de Lyon et arrive deux heures plus tard à Marseille avec 45,50 euros.",
    "Встреча состоится 5 мая в 14:30, и мы ждём 25 гостей из разных стран.",
    "今天是2024年3月5日，天气很好，我们去公园散步，花了35元。明天我们用 PyTorch 2.6 跑模型。",
    "昨日は3時に駅で友達と会って、映画を見ました。とても面白かったです。",
]


def frontend(version: int) -> TextFrontend:
    folder = golden(version).dir
    return TextFrontend.for_model(load_config(folder), Tokenizer.load(folder, version))


def portions(text: str, seed: int) -> list[str]:
    chance, incremental, found, start = random.Random(seed), IncrementalText("model"), [], 0
    while start < len(text):
        end = start + chance.randint(1, 9)
        found += incremental.portions(text[start:end])
        start = end
    return [portion.text for portion in [*found, *incremental.last_portions()]]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("text", PROSE)
def test_what_is_read_word_by_word_is_what_is_read_as_a_whole(text: str, version: int) -> None:
    reader = frontend(version)
    cut = portions(text, seed=1)
    assert all(portions(text, seed) == cut for seed in range(2, 8))
    assert "".join(cut) == text
    read, before, ids = "", "", []
    for portion in cut:
        spoken = reader.portion(portion, before)
        ids.append(reader.count_tokens(spoken))
        read, before = read + spoken, before + portion
    whole = "".join(segment.tokens_text for segment in reader.segments(text))
    assert read.strip() == whole.strip()
    assert sum(ids) == reader.count_tokens(whole)
    assert len(cut) >= 3


def test_plain_words_are_released_one_by_one_and_numbers_with_their_neighbours() -> None:
    text = "We will meet in the park on May 3 at 5 p.m. with all of our friends."
    assert portions(text, 0) == [
        "We",
        " will",
        " meet",
        " in",
        " the",
        " park",
        " on",
        " May 3 at 5 p.m. with all",
        " of",
        " our",
        " friends.",
    ]


def test_a_phoneme_voice_reads_no_portions() -> None:
    class Whole(TextFrontend):
        prompt_text = warm_up = count_tokens = _segments = None  # type: ignore[assignment]

    with pytest.raises(TextError) as refused:
        Whole().portion("word", "")
    assert refused.value.code == "unsupported_parameter"


@dataclass
class Listening(FakeBackend):
    """An engine that takes text while it speaks: a hop for every three portions, and one at the end. `longest`: the
    portions after which the model ends an utterance, whatever is still to come."""

    texts: list[list[str]] = field(default_factory=list)
    longest: int | None = None

    def __post_init__(self) -> None:
        self.frontend = frontend(self.version)  # type: ignore[assignment]

    async def describe(self) -> ModelInfo:
        info = await super().describe()
        return replace(info, modes=(*info.modes, "bistream"))

    async def dictate(self, request: SpeechRequest, texts: AsyncIterator[str]) -> AsyncGenerator[Frame, None]:
        self.requests.append(request)
        self.texts.append([])
        heard = self.texts[-1]
        self.running += 1
        try:
            async for text in texts:
                heard.append(text)
                if self.fail_after is not None and len(heard) > self.fail_after:
                    raise self.error
                if len(heard) % 3 == 0:
                    yield Frame(FrameKind.AUDIO, made(request.seed, len(heard)).tobytes())
                if len(heard) == self.longest:
                    break
            yield Frame(FrameKind.AUDIO, made(request.seed, 0).tobytes())
            yield Frame.of(FrameKind.SEGMENT, end=1)
            yield Frame.of(FrameKind.END, finish_reason="stop", text_tokens=1, speech_tokens=2)
        finally:
            self.running -= 1


async def write(session: Session, words: Sequence[str]) -> None:
    for word in words:
        await session.say("input.text", text=word)


async def test_speech_begins_within_the_sentence_and_every_sentence_is_one_request() -> None:
    backend = Listening()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model", timestamp_granularities=["segment"])
        assert (await session.until("session.updated"))["policy"] == "model"
        await write(session, ["This ", "is ", "a ", "sentence ", "that "])
        await session.audio_has_begun()
        assert "".join(backend.texts[0]).startswith("This is a")
        await write(session, ["goes on. ", "And ", "another one"])
        await session.say("input.done")
        await session.until("session.done")
    texts = ["This is a sentence that goes on.", " And another one"]
    assert [sentence.done["text"] for sentence in session.sentences] == texts
    assert texts[0].startswith(session.sentences[0].start["text"])
    assert ["".join(heard) for heard in backend.texts] == ["This is a sentence that goes on.", "And another one."]
    assert all(request.incremental and not request.segments for request in backend.requests)
    timed = [event["segments"] for event in session.events if event["type"] == "audio.timestamps"]
    assert [segment["text"] for (segment,) in timed] == [text.strip() for text in texts]
    assert sum(event["type"] == "error" for event in session.events) == 0


async def test_a_long_sentence_is_several_requests_of_a_bounded_size() -> None:
    backend = Listening()
    words = ["word "] * 300
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        await write(session, ["".join(words)])
        await session.say("input.done")
        await session.until("session.done")
    assert "".join(sentence.done["text"] for sentence in session.sentences) == "".join(words).rstrip() + " "
    sizes = [sum(map(backend.frontend.count_tokens, heard)) for heard in backend.texts]
    assert len(sizes) > 2
    assert max(sizes) <= INCREMENTAL_TOKENS


async def test_barge_in_and_leaving_end_the_request_and_the_session_goes_on() -> None:
    backend = Listening()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        await write(session, ["One ", "two ", "three ", "four ", "five "])
        await session.audio_has_begun()
        await session.say("response.cancel")
        assert (await session.until("utterance.done"))["finish_reason"] == "cancelled"
        await comes_true(lambda: backend.running == 0)
        await write(session, ["Something ", "else."])
        await session.say("input.flush")
        assert (await session.until("utterance.done"))["finish_reason"] == "stop"
        assert "".join(backend.texts[-1]) == "Something else."
        await write(session, ["And ", "now ", "I ", "leave ", "you "])
        await session.audio_has_begun()
        assert backend.running == 1
    await comes_true(lambda: backend.running == 0)


async def test_who_pauses_gives_up_the_place_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictation.Arriving.__init__, "__defaults__", (0.2, 60.0))
    backend = Listening()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        await write(session, ["One ", "two ", "three ", "four ", "five "])
        await session.until("audio.done")
        assert backend.running == 0
        await write(session, ["six ", "seven ", "eight."])
        await session.say("input.done")
        await session.until("session.done")
    assert (
        "".join(sentence.done["text"] for sentence in session.sentences) == "One two three four five six seven eight."
    )


async def test_who_writes_on_and_on_is_spoken_in_several_utterances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictation.Arriving.__init__, "__defaults__", (5.0, 0.3))
    backend = Listening()
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        for word in words:
            await write(session, [f"{word} "])
            await asyncio.sleep(0.1)
        await session.say("input.done")
        await session.until("session.done")
    spoken = "".join(sentence.done["text"] for sentence in session.sentences)
    assert spoken.split() == words
    assert 2 < len(backend.texts) < 9


async def test_what_is_written_after_the_model_has_ended_an_utterance_is_spoken_by_the_next() -> None:
    backend = Listening(longest=6)
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        await write(session, ["One ", "two ", "three ", "four ", "five ", "six ", "seven "])
        await session.until("audio.done")
        await write(session, ["eight ", "nine ", "ten."])
        await session.say("input.done")
        await session.until("session.done")
    assert [text for heard in backend.texts for text in "".join(heard).split()][-3:] == ["eight", "nine", "ten."]


async def test_what_cannot_be_read_is_an_error_of_its_utterance_alone() -> None:
    backend = Listening()
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", format="pcm", policy="model")
        await write(session, ["Good ", "words ", "here. ", "Then ", "λόγος ", "and ", "more."])
        await session.say("input.flush")
        error = await session.until("error")
        assert (error["code"], error["fatal"]) == ("unsupported_language", False)
        assert (await session.until("utterance.done"))["finish_reason"] == "error"
        await write(session, ["—— "])
        await session.say("input.flush")
        assert (await session.until("error"))["code"] == "no_speakable_text"
        await session.until("utterance.done")
        backend.fail_after, backend.error = 1, RequestError("engine_error", "The engine stopped.", 500)
        await write(session, ["It ", "will ", "fail ", "now."])
        await session.say("input.flush")
        assert (await session.until("error"))["code"] == "engine_error"
        await session.until("utterance.done")
    assert session.sentences[0].done["text"] == "Good words here."


@pytest.mark.parametrize(
    ("version", "modes", "fields", "param"),
    [
        (2, ("preset",), {}, "policy"),
        (2, ("preset", "bistream", "instruct"), {"instructions": "Softly."}, "instructions"),
        (3, ("preset", "bistream"), {"pronunciation": [{"text": "a", "replace": "b"}]}, "pronunciation"),
    ],
)
async def test_what_the_model_cannot_do_is_refused(version: int, modes: tuple, fields: dict, param: str) -> None:
    backend = Listening(version=version)

    async def describe() -> ModelInfo:
        return replace(await FakeBackend.describe(backend), modes=modes)

    backend.describe = describe  # type: ignore[method-assign]
    async with live_server(backend) as server, server.session() as session:
        await session.say("session.config", policy="model", **fields)
        error = await session.until("error")
        assert (error["code"], error["param"], error["fatal"]) == ("unsupported_parameter", param, False)
        await session.say("session.config", policy="sentence")
        assert (await session.until("session.updated"))["policy"] == "sentence"
