"""What a request may ask for itself: sampling, a limit of tokens, no transcript; and where its segments end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from runners.frames import FrameKind
from runners.modes import resolve
from runners.request import RequestError, Sampling, SpeechRequest
from runners.scheduler import Scheduler
from tests.golden import golden
from tests.runners.engine import engine, greedy, same_audio, speak, tiny_model, zero_shot_request, zero_shot_voice


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 0.9, 40, 100)])
def test_a_request_survives_the_wire(sampling: Sampling) -> None:
    request = zero_shot_request(2, sampling=sampling, cross_lingual=True, conditioning=None, voice="cosy")
    assert SpeechRequest.from_bytes(request.to_bytes()) == request


async def test_a_stream_says_where_each_segment_ends_as_soon_as_it_has_been_sent() -> None:
    texts = ("one", "a", "b c")
    request = zero_shot_request(2, segments=texts)
    async with engine(2, greedy) as scheduler:
        job = await scheduler.submit(request)
        frames = [frame async for frame in job.frames()]
        single, _ = await speak(scheduler, replace(request, segments=texts[:1]))
    samples, ends = np.zeros(0, np.float32), []
    for frame in frames:
        if frame.kind is FrameKind.AUDIO:
            samples = np.append(samples, np.frombuffer(frame.payload, np.float32))
        elif frame.kind is FrameKind.SEGMENT:
            ends.append(frame.json()["end"])
            assert ends[-1] == len(samples)
    assert ends == sorted(set(ends))
    assert (len(ends), ends[-1]) == (3, len(samples))
    assert same_audio(samples[: ends[0]], np.concatenate(single))


async def _tokens(scheduler: Scheduler, request: SpeechRequest) -> list[int]:
    job = await scheduler.submit(request)
    async for frame in job.frames():
        assert frame.kind is not FrameKind.ERROR
    return job.utterances[0].history


@pytest.mark.parametrize("version", [2, 3])
async def test_each_request_of_a_batch_is_sampled_as_it_asks(version: int) -> None:
    wanted = [Sampling(), Sampling(temperature=0.01), Sampling(top_k=1), Sampling(1.8, 1.0, 200), Sampling(top_p=0.05)]
    requests = [
        zero_shot_request(version, "one two", seed=3, stream=False, sampling=replace(sampling, max_new_tokens=25))
        for sampling in wanted
    ]
    async with engine(version) as scheduler:
        alone = [await _tokens(scheduler, request) for request in requests]
        together = await asyncio.gather(*(_tokens(scheduler, request) for request in requests))
    assert together == alone
    assert len(set(map(tuple, alone))) > 2
    assert alone[3] != alone[0]


async def test_a_limit_of_tokens_cuts_each_segment_and_is_told() -> None:
    request = zero_shot_request(
        2, segments=("one two three four five six", "hello"), sampling=Sampling(max_new_tokens=30)
    )
    async with engine(2, greedy) as scheduler:
        _, end = await speak(scheduler, request)
        _, free = await speak(scheduler, replace(request, sampling=Sampling()))
    assert free["speech_tokens"] > end["speech_tokens"]
    assert end["speech_tokens"] <= 60
    assert end["finish_reason"] == "length"


@pytest.mark.parametrize("version", [2, 3])
def test_a_transcript_can_be_left_out(version: int) -> None:
    model = tiny_model(version)
    voice = replace(zero_shot_voice(golden(version)), prompt_text_ids=(5, 6, 7))
    request = SpeechRequest(segments=("Hello.",), conditioning=voice)
    with_text, without = resolve(request, model), resolve(replace(request, cross_lingual=True), model)
    assert len(with_text.lm_prompt_tokens) == len(voice.prompt_tokens)
    assert not without.lm_prompt_tokens
    assert len(without.segments[0].text_ids) < len(with_text.segments[0].text_ids)
    assert without.prompt.key == with_text.prompt.key
    assert voice.prompt_text_ids == (5, 6, 7)


def test_source_tokens_need_a_recorded_voice() -> None:
    bare = replace(
        zero_shot_voice(golden(2)), prompt_tokens=np.zeros(0, np.int32), prompt_mel=np.zeros((0, 80), np.float32)
    )
    with pytest.raises(RequestError, match="recording"):
        resolve(SpeechRequest(source_tokens=(1, 2, 3), conditioning=bare), tiny_model(2))
