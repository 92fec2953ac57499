"""The text of a request arrives while it is spoken, among others that have all of theirs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from models.bistream import Bistream
from models.sampling import ras_sample
from runners.frames import FrameKind
from runners.modes import resolve
from runners.request import INCREMENTAL_TOKENS, RequestError, Sampling, SpeechRequest
from runners.scheduler import Scheduler
from runners.sequence import Job, request_generator
from tests.runners.engine import engine, speak, tiny_model, until, zero_shot_request

TOKENS = 60  # of speech: enough for two hops
FEW = Sampling(max_new_tokens=TOKENS)
WORDS = ["read", " this", " sentence", " aloud,", " please", " and", " then", " one", " more", " of", " them."]


def incremental(version: int, **changes) -> SpeechRequest:
    return zero_shot_request(version, **{"segments": (), "incremental": True, "sampling": FEW, **changes})


def alone(version: int, request: SpeechRequest, words: Sequence[str]) -> list[int]:
    """The speech tokens of the automaton by itself, all text there from the beginning."""
    model = tiny_model(version)
    lm, plan = model.lm, resolve(request, model)
    end = model.tokenizer.end_of_prompt_id
    stream = Bistream(lm, plan.segments[0].text_ids, plan.lm_prompt_tokens, end_of_prompt_id=end)
    cache = lm.new_cache()
    slot, generator, spoken = cache.add(), request_generator(request.seed, 0, 0), []
    for word in words:
        stream.push(model.tokenizer.encode(word))
    stream.finish()
    with torch.inference_mode():
        while (step := stream.next_input()) is not None:
            if isinstance(step, torch.Tensor):
                logp = lm.extend(cache, slot, step)
            else:
                (logp,) = lm.decode(cache, torch.tensor([step]))
            token = stream.forced
            if token is None:
                token = ras_sample(stream.mask(logp), stream.history, model.config.sampling, generator)
            if (speech := stream.accept(token)) is not None:
                spoken.append(speech)
    return spoken[:TOKENS]


async def heard(job: Job) -> dict:
    async for frame in job.frames():
        if frame.last:
            return frame.json()
    raise AssertionError("no last frame")


async def feed(scheduler: Scheduler, job: Job, words: Sequence[str], pause: Callable[[], float]) -> None:
    for word in words:
        scheduler.push_text(job, word)
        if (seconds := pause()) >= 0:
            await asyncio.sleep(seconds)
    scheduler.end_text(job)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", [2])
async def test_what_is_drawn_depends_on_the_text_and_not_on_when_it_comes_or_who_else_speaks(
    version: int, seed: int
) -> None:
    chance = random.Random(seed)
    requests = [incremental(version, seed=number, stream=False) for number in range(3)]
    texts = [WORDS[: chance.randint(1, len(WORDS))] for _ in requests]
    expected = [alone(version, request, words) for request, words in zip(requests, texts, strict=True)]

    async def whole(scheduler: Scheduler, number: int) -> None:
        await asyncio.sleep(chance.random() / 20)
        text = " ".join(WORDS[: chance.randint(1, 4)])
        job = await scheduler.submit(zero_shot_request(version, text, seed=number, stream=False, sampling=FEW))
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() / 20)
            scheduler.cancel(job)
        else:
            await heard(job)

    async with engine(version, max_live=chance.randint(8, 10)) as scheduler:
        others = [asyncio.create_task(whole(scheduler, number)) for number in range(4)]
        jobs = [await scheduler.submit(request) for request in requests]
        dropped = await scheduler.submit(incremental(version, seed=9))
        pauses = [lambda: chance.choice([-1.0, 0.0, 0.003, 0.02])] * len(jobs)
        feeding = [feed(scheduler, *each) for each in zip(jobs, texts, pauses, strict=True)]
        feeding.append(feed(scheduler, dropped, WORDS[:7], pauses[0]))
        asyncio.get_running_loop().call_later(chance.random() / 10, scheduler.cancel, dropped)
        ends = await asyncio.gather(*(heard(job) for job in jobs), *feeding, *others)
        await until(lambda: not scheduler.jobs)
        assert scheduler._memory.reserved == 0
    assert [job.utterances[0].history for job in jobs] == expected
    assert [end["speech_tokens"] for end in ends[: len(jobs)]] == [len(tokens) for tokens in expected]


@pytest.mark.parametrize("version", [2, 3])
async def test_audio_comes_before_the_text_has_ended(version: int) -> None:
    async with engine(version) as scheduler:
        job = await scheduler.submit(incremental(version, seed=3))
        given_words = 0
        for word in WORDS * 3:
            scheduler.push_text(job, word)
            given_words += 1
            await until(lambda: job.utterances[0].text_wanted and not scheduler._audio_ready(job))
            if job.samples_sent:
                break
        assert job.samples_sent > 0
        scheduler.end_text(job)
        assert (await heard(job))["text_tokens"] > given_words


async def test_who_waits_for_text_holds_nobody_up() -> None:
    async with engine(2, max_live=4) as scheduler:
        waiting = [await scheduler.submit(incremental(2, seed=number)) for number in range(2)]
        for job in waiting:
            for word in WORDS[:8]:
                scheduler.push_text(job, word)
        await until(lambda: len(scheduler.decoder.live) == 2 and all(one.text_wanted for one in scheduler.decoder.live))
        lengths = list(scheduler.decoder.cache.lengths)
        request = zero_shot_request(2, "Hello world.", seed=4, sampling=FEW)
        among = await speak(scheduler, request)
        assert list(scheduler.decoder.cache.lengths) == lengths
        for job in waiting:
            scheduler.cancel(job)
        await until(lambda: not scheduler.decoder.live)
        by_itself = await speak(scheduler, request)
    assert among[1] == by_itself[1]
    assert np.allclose(np.concatenate(among[0]), np.concatenate(by_itself[0]), atol=1e-3)


async def test_texts_that_are_being_written_take_half_of_the_slots_and_no_listeners_place() -> None:
    async with engine(2, max_live=4, max_ttfa_seconds=30.0) as scheduler:
        waiting = [await scheduler.submit(incremental(2, seed=number)) for number in range(2)]
        for job in waiting:
            for word in WORDS[:8]:
                scheduler.push_text(job, word)
        await until(lambda: len(scheduler.decoder.live) == 2 and all(one.text_wanted for one in waiting))
        for job in waiting:
            job.utterances[0].live_at -= 100.0  # as if they had been written for so long
        with pytest.raises(RequestError, match="2 texts that are still being written") as refused:
            await scheduler.submit(incremental(2))
        assert (refused.value.code, refused.value.status) == ("overloaded", 429)
        follows = await scheduler.submit(incremental(2, continues=True))  # of a session, which is not refused: it waits
        for word in WORDS[:8]:
            scheduler.push_text(follows, word)
        scheduler._admission._most_listeners = lambda: 1.0  # type: ignore[method-assign]
        assert (await speak(scheduler, zero_shot_request(2, "Hello world.", sampling=FEW)))[0]
        assert not follows.live
        turnover = scheduler._admission._turnover.high
        for job in waiting:
            scheduler.end_text(job)
            await heard(job)
        assert scheduler._admission._turnover.high == turnover  # how long somebody writes tells nothing of the others
        await until(lambda: follows.live)
        scheduler.cancel(follows)


async def test_silence_costs_nothing() -> None:
    async with engine(2) as scheduler:
        job = await scheduler.submit(incremental(2))
        for word in WORDS[:8]:
            scheduler.push_text(job, word)
        await until(lambda: bool(scheduler.decoder.live) and scheduler.decoder.live[0].text_wanted)
        await asyncio.sleep(0.05)
        steps = scheduler.decoder.steps
        await asyncio.sleep(0.05)
        assert scheduler.decoder.steps == steps
        scheduler.end_text(job)
        assert (await heard(job))["finish_reason"] in ("stop", "length")


async def test_too_much_text_ends_the_request() -> None:
    async with engine(2) as scheduler:
        job = await scheduler.submit(incremental(2))
        for _ in range(INCREMENTAL_TOKENS + 1):
            scheduler.push_text(job, " a")
        assert (await heard(job))["code"] == "input_too_long"
        await until(lambda: not scheduler.jobs)
        scheduler.push_text(job, " late")
        scheduler.end_text(job)


async def test_no_text_at_all_is_an_error_and_not_a_wait() -> None:
    async with engine(2) as scheduler:
        job = await scheduler.submit(incremental(2))
        scheduler.end_text(job)
        assert (await heard(job))["code"] == "engine_error"


async def test_instructions_need_the_whole_text_on_cosyvoice_2_only() -> None:
    changes = {"prompt_text": None, "instructions": "Speak softly."}
    with pytest.raises(RequestError) as refused:
        resolve(incremental(2, **changes), tiny_model(2))
    assert refused.value.code == "unsupported_parameter"
    assert resolve(incremental(3, **changes), tiny_model(3)).segments[0].counted == 0


async def test_a_folder_that_was_not_trained_for_it_refuses() -> None:
    model = tiny_model(2)
    folder = replace(model.config.folder, bistream=False)
    with pytest.raises(RequestError) as refused:
        resolve(incremental(2), replace(model, config=replace(model.config, folder=folder)))
    assert refused.value.code == "unsupported_parameter"


async def test_frames_of_an_incremental_request_end_as_any_other() -> None:
    async with engine(3) as scheduler:
        job = await scheduler.submit(incremental(3, seed=1))
        for word in WORDS:
            scheduler.push_text(job, word)
        scheduler.end_text(job)
        kinds = [frame.kind async for frame in job.frames()]
    assert kinds[-2:] == [FrameKind.SEGMENT, FrameKind.END]
    assert set(kinds[:-2]) == {FrameKind.AUDIO}
