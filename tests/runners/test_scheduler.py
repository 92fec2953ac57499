"""Requests join, leave, fail and are cancelled without touching each other's samples."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from models.token2wav import Audio, Turn, _Mel
from runners.frames import FrameKind
from runners.request import RequestError, SpeechRequest
from runners.scheduler import Scheduler
from runners.sequence import Utterance
from tests.golden import golden
from tests.runners.engine import (
    engine,
    greedy,
    same_audio,
    speak,
    tiny_model,
    until,
    zero_shot_request,
    zero_shot_voice,
)

Same = Callable[[np.ndarray, np.ndarray], bool]
# Synthesis alone, as on a CPU: the same to the bit; in batches, as on a GPU: up to what products of another size round.
BATCHES = [pytest.param(0.0, np.array_equal, id="alone"), pytest.param(0.3, same_audio, id="batched")]


def _requests(version: int) -> list[SpeechRequest]:
    texts = ["Hello world.", "read this sentence aloud please", "a", "one two three four five six seven"]
    return [zero_shot_request(version, text, seed=index, stream=index % 2 == 0) for index, text in enumerate(texts)]


@pytest.mark.parametrize(("batch_seconds", "same"), BATCHES)
@pytest.mark.parametrize("version", [2, 3])
async def test_audio_is_the_same_alone_and_among_others(version: int, batch_seconds: float, same: Same) -> None:
    requests = _requests(version)
    async with engine(version, greedy, batch_seconds=batch_seconds) as scheduler:
        alone = [await speak(scheduler, request) for request in requests]
        together = await asyncio.gather(*(speak(scheduler, request) for request in requests))
    for (blocks, end), (others, other_end) in zip(alone, together, strict=True):
        assert end == other_end
        assert same(np.concatenate(blocks), np.concatenate(others))


@pytest.mark.parametrize("version", [2, 3])
async def test_what_a_request_draws_is_the_same_alone_and_among_others(version: int) -> None:
    requests = _requests(version)
    heard: list[list[int]] = []

    async def tokens(scheduler: Scheduler, request: SpeechRequest) -> list[int]:
        job = await scheduler.submit(request)
        async for frame in job.frames():
            assert frame.kind is not FrameKind.ERROR
        return job.utterances[0].history

    async with engine(version) as scheduler:
        heard = [await tokens(scheduler, request) for request in requests]
        together = await asyncio.gather(*(tokens(scheduler, request) for request in requests))
    assert list(together) == heard
    assert any(len(history) > 2 for history in heard)


async def test_decoding_is_batched_over_live_requests() -> None:
    model = tiny_model(2)
    widths: list[int] = []
    decode = model.lm.decode

    def spy(cache, tokens):
        widths.append(len(tokens))
        return decode(cache, tokens)

    model.lm.decode = spy  # type: ignore[method-assign]
    try:
        async with engine(2, greedy) as scheduler:
            await asyncio.gather(*(speak(scheduler, zero_shot_request(2, stream=False)) for _ in range(4)))
    finally:
        del model.lm.decode
    assert max(widths) == 4
    assert len(widths) < 4 * 200 / 2  # four utterances of 200 tokens, one step after another, would take 800


@pytest.mark.parametrize("version", [2, 3])
async def test_the_seed_decides_the_audio(version: int) -> None:
    async with engine(version) as scheduler:
        first, _ = await speak(scheduler, zero_shot_request(version, seed=7))
        again, _ = await speak(scheduler, zero_shot_request(version, seed=7))
        other, _ = await speak(scheduler, zero_shot_request(version, seed=8))
    assert np.array_equal(np.concatenate(first), np.concatenate(again))
    assert not np.array_equal(np.concatenate(first), np.concatenate(other))


async def test_every_stream_starts_with_the_schedule_of_a_fresh_model() -> None:
    """Upstream's hop length lives on the model and never shrinks again; here it belongs to the request."""
    async with engine(2, greedy) as scheduler:
        first, _ = await speak(scheduler, zero_shot_request(2))
        second, _ = await speak(scheduler, zero_shot_request(2))
    assert [len(block) for block in first] == [len(block) for block in second]
    assert len(first) > 3


async def test_segments_are_spoken_in_order_as_one_stream() -> None:
    async with engine(2, greedy) as scheduler:
        whole = zero_shot_request(2, stream=False)
        blocks, end = await speak(scheduler, replace(whole, segments=("Hello world.", "a")))
        single, _ = await speak(scheduler, replace(whole, segments=("Hello world.",)))
    assert len(blocks) == 2
    assert np.allclose(blocks[0], single[0], atol=1e-5)
    assert end["samples"] == sum(map(len, blocks))


async def test_a_cancelled_request_frees_its_slot_within_one_step() -> None:
    async with engine(2, greedy) as scheduler:
        job = await scheduler.submit(zero_shot_request(2, "a " * 50))
        await until(lambda: len(scheduler.decoder.live) == 1 and scheduler.decoder.steps > 3)
        steps = scheduler.decoder.steps
        scheduler.cancel(job)
        await until(lambda: not scheduler.decoder.live)
        assert scheduler.decoder.steps - steps <= 1
        assert not scheduler.jobs
        blocks, _ = await speak(scheduler, zero_shot_request(2))  # the slot serves the next request
        assert blocks


async def test_a_request_cancelled_before_its_first_step_never_runs() -> None:
    async with engine(2, greedy) as scheduler:
        scheduler.model.lm.extend = None  # type: ignore[assignment,method-assign]
        try:
            job = await scheduler.submit(zero_shot_request(2))
            scheduler.cancel(job)
            await until(lambda: not scheduler.jobs)
            assert not job.finished  # neither ended nor failed: it never began
        finally:
            del scheduler.model.lm.extend


def _failing(owner: object, name: str, monkeypatch: pytest.MonkeyPatch, when: Callable[[tuple], bool]) -> None:
    """`owner.name` raises MemoryError on the calls for which `when(first argument)` is true."""
    original = getattr(owner, name)

    def wrapper(*arguments, **options):
        if when(arguments):
            raise MemoryError("injected")
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, wrapper)


def _is_hop(item: Turn | _Mel, utterance: Utterance, which: str) -> bool:
    """Whether the flow's or the vocoder's work is the hop `which` of an utterance."""
    if item.state.rng != utterance.vocoder_generator:
        return False
    if which == "last hop":
        return item.last
    done = item.state.hops if isinstance(item, Turn) else item.call
    return not item.last and done == int(which.split()[-1]) - 1


_UNDISTURBED: dict[int, list[np.ndarray]] = {}


async def _undisturbed(version: int) -> list[np.ndarray]:
    """What the three requests of the fault tests sound like when nothing fails."""
    if version not in _UNDISTURBED:
        async with engine(version, greedy) as scheduler:
            _UNDISTURBED[version] = [
                np.concatenate((await speak(scheduler, zero_shot_request(version, "Hello world.", seed=seed)))[0])
                for seed in range(3)
            ]
    return _UNDISTURBED[version]


@pytest.mark.parametrize(
    "stage",
    [
        "prefill",
        "sampling at step 0",
        "sampling at step 30",
        *(f"{hop} in the {what}" for hop in ("hop 1", "hop 2", "last hop") for what in ("flow", "vocoder")),
    ],
)
@pytest.mark.parametrize(("batch_seconds", "same"), BATCHES)
@pytest.mark.parametrize("version", [2, 3])
async def test_a_fault_ends_one_request_alone(
    version: int, batch_seconds: float, same: Same, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [zero_shot_request(version, "Hello world.", seed=seed) for seed in range(3)]
    expected = await _undisturbed(version)
    model = tiny_model(version)
    async with engine(version, greedy, batch_seconds=batch_seconds) as scheduler:
        jobs = [await scheduler.submit(request) for request in requests]
        victim = jobs[1]
        utterance = victim.utterances[0]
        if stage == "prefill":
            prefills = itertools.count()
            _failing(model.lm, "extend", monkeypatch, lambda a: next(prefills) == 1)
        elif stage.startswith("sampling"):
            step = int(stage.split()[-1])

            def sampler(logp, draws):
                hit = [draw.history is utterance.history and len(draw.history) == step for draw in draws]
                return [
                    MemoryError("injected") if bad else token
                    for bad, token in zip(hit, greedy(logp, draws), strict=True)
                ]

            monkeypatch.setattr(scheduler.decoder, "sampler", sampler)
        else:
            which, _, what = stage.partition(" in the ")
            owner, name = (model.token2wav, "_mels") if what == "flow" else (model.token2wav, "_vocode")
            _failing(owner, name, monkeypatch, lambda a: any(_is_hop(item, utterance, which) for item in a[0]))

        async def read(job):
            return [frame async for frame in job.frames()]

        results = await asyncio.gather(*map(read, jobs))
        assert not scheduler.decoder.live
        assert not scheduler.jobs
    error = results[1][-1].json()
    assert (error["code"], error["status"]) == ("engine_error", 500)
    for index in (0, 2):
        audio = [frame.payload for frame in results[index] if frame.kind is FrameKind.AUDIO]
        blocks = [np.frombuffer(payload, np.float32) for payload in audio]
        assert same(np.concatenate(blocks), expected[index])


@pytest.mark.parametrize("before", [True, False], ids=["before the cache has the token", "after it"])
async def test_a_decode_step_that_fails_as_a_whole_ends_the_newest_request_only(before: bool, monkeypatch) -> None:
    request = zero_shot_request(2, "one two three", seed=1, stream=False)
    model, hits = tiny_model(2), itertools.count()
    async with engine(2) as scheduler:
        alone = await scheduler.submit(request)
        assert [frame async for frame in alone.frames()][-1].kind is FrameKind.END
        old = await scheduler.submit(request)
        await until(lambda: scheduler.decoder.steps > 2)
        new = await scheduler.submit(zero_shot_request(2, stream=False))
        owner, name = (model.lm, "decode") if before else (scheduler.decoder, "_sample")
        _failing(owner, name, monkeypatch, lambda a: len(a[before]) == 2 and next(hits) == 0)
        frames = [frame async for frame in new.frames()]
        assert frames[-1].json()["code"] == "engine_error"
        assert [frame async for frame in old.frames()][-1].kind is FrameKind.END
    assert old.utterances[0].history == alone.utterances[0].history


async def test_a_token_that_cannot_be_taken_ends_its_own_request_only(monkeypatch) -> None:
    requests = [zero_shot_request(2, "one two three", seed=seed, stream=False) for seed in range(3)]
    async with engine(2) as scheduler:
        alone = [await scheduler.submit(request) for request in requests]
        for job in alone:
            assert [frame async for frame in job.frames()][-1].kind is FrameKind.END
        jobs = [await scheduler.submit(request) for request in requests]
        _failing(scheduler.decoder, "_accept", monkeypatch, lambda a: a[0].job is jobs[0] and len(a[0].history) == 10)
        ends = []
        for job in jobs:
            ends.append([frame async for frame in job.frames()][-1])
    assert [end.kind for end in ends] == [FrameKind.ERROR, FrameKind.END, FrameKind.END]
    for job, expected in zip(jobs[1:], alone[1:], strict=True):
        assert job.utterances[0].history == expected.utterances[0].history


async def test_audio_that_is_not_finite_is_an_error(monkeypatch) -> None:
    model = tiny_model(3)
    vocode = model.token2wav._vocode
    monkeypatch.setattr(
        model.token2wav,
        "_vocode",
        lambda mels: [Audio(audio.samples * float("nan"), audio.state) for audio in vocode(mels)],
    )
    async with engine(3, greedy) as scheduler:
        blocks, end = await speak(scheduler, zero_shot_request(3, stream=False))
    assert not blocks
    assert end["code"] == "nonfinite_audio"


async def test_more_requests_than_the_limit_are_refused_at_once() -> None:
    async with engine(2, greedy, max_requests=2) as scheduler:
        jobs = [await scheduler.submit(zero_shot_request(2)) for _ in range(2)]
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2))
        assert (refusal.value.code, refusal.value.status) == ("overloaded", 429)
        for job in jobs:
            assert [frame async for frame in job.frames()][-1].json()["finish_reason"] == "length"
        await scheduler.submit(zero_shot_request(2))


async def test_more_requests_than_slots_all_finish() -> None:
    async with engine(2, greedy, max_live=2) as scheduler:
        results = await asyncio.gather(*(speak(scheduler, zero_shot_request(2, "a")) for _ in range(5)))
        assert all(end["finish_reason"] == "length" for _, end in results)


async def test_a_reader_that_does_not_read_pauses_only_itself() -> None:
    async with engine(2, greedy, max_unread_seconds=0.5) as scheduler:
        request = zero_shot_request(2, "Hello world.")
        slow = await scheduler.submit(replace(request, segments=request.segments * 3))
        blocks, _ = await speak(scheduler, zero_shot_request(2, "a"))
        assert blocks
        await until(lambda: slow.seconds_unread > 0.5)
        await asyncio.sleep(0.5)
        paused_at = slow.samples_sent
        await asyncio.sleep(0.5)
        assert slow.samples_sent == paused_at
        frames = [frame async for frame in slow.frames()]
        assert frames[-1].json()["samples"] == 960 * 20 * frames[-1].json()["text_tokens"] > paused_at


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"conditioning": None, "prompt_text": None, "voice": "nobody"}, "voice_not_found"),
        ({"conditioning": None, "prompt_text": None}, "voice_required"),
        (
            {"conditioning": None, "prompt_text": None, "voice": "spk_a", "instructions": "slowly"},
            "unsupported_parameter",
        ),
    ],
)
async def test_what_the_model_cannot_do_is_refused_before_any_work(changes: dict, code: str) -> None:
    async with engine(2, greedy) as scheduler:
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2, **changes))
        assert refusal.value.code == code
        assert not scheduler.jobs


LONG_VOICE = replace(
    zero_shot_voice(golden(2)), prompt_tokens=np.zeros(751, np.int32), prompt_mel=np.zeros((1502, 80), np.float32)
)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"conditioning": LONG_VOICE}, "ref_audio_too_long"),
        ({"segments": (), "source_tokens": (7,) * 7442}, "input_too_long"),
        ({"segments": ("a " * 3800,)}, "input_too_long"),
        ({"segments": (), "source_tokens": (6561,)}, "invalid_value"),
        ({"conditioning": replace(zero_shot_voice(golden(2)), embedding=np.zeros(7, np.float32))}, "invalid_value"),
    ],
)
async def test_what_the_networks_cannot_take_is_refused_before_any_work(changes: dict, code: str) -> None:
    async with engine(2, greedy) as scheduler:
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2, **changes))
        assert (refusal.value.code, refusal.value.status) == (code, 400)
        assert not scheduler.jobs


@pytest.mark.parametrize(("batch_seconds", "same"), BATCHES)
@pytest.mark.parametrize("version", [2, 3])
async def test_requests_that_come_and_go_at_random_leave_each_other_alone(
    version: int, batch_seconds: float, same: Same
) -> None:
    """Streams and buffered requests, presets and clones, some cancelled at any time, memory being short."""
    chance = random.Random(version)
    texts = ["Hello world.", "a", "one two three", "read this"]
    requests = []
    for index in range(8):
        request = zero_shot_request(version, chance.choice(texts), seed=index % 4, stream=chance.random() < 0.7)
        if chance.random() < 0.4:
            request = replace(request, conditioning=None, prompt_text=None, voice="spk_a")
        requests.append(request)
    alone: dict[int, np.ndarray] = {}
    async with engine(version, greedy) as scheduler:
        for index, request in enumerate(requests):
            alone[index] = np.concatenate((await speak(scheduler, request))[0])
    async with engine(version, greedy) as scheduler:
        job = await scheduler.submit(zero_shot_request(version, "Hello world."))
        short = 3 * job.utterances[0].needs  # two or three at a time
        scheduler.cancel(job)
    async with engine(version, greedy, max_live=4, memory_bytes=short, batch_seconds=batch_seconds) as scheduler:

        async def live(index: int, request: SpeechRequest) -> None:
            await asyncio.sleep(chance.random())
            job = await scheduler.submit(request)
            patience = chance.randint(1, 3) if index % 3 == 2 else 99
            blocks = []
            async for frame in job.frames():
                if frame.last:
                    break
                if frame.kind is FrameKind.SEGMENT:
                    continue
                blocks.append(np.frombuffer(frame.payload, np.float32))
                if len(blocks) == patience:
                    scheduler.cancel(job)
                    break
            heard = np.concatenate(blocks)
            assert same(heard, alone[index][: len(heard)])
            assert patience < 99 or len(heard) == len(alone[index])

        await asyncio.gather(*(live(index, request) for index, request in enumerate(requests)))
        await until(lambda: not scheduler.jobs)
        assert scheduler._memory.reserved == 0
        assert not scheduler.decoder.live


async def test_an_utterance_waits_for_memory_and_too_many_that_wait_are_refused() -> None:
    async with engine(2, greedy) as scheduler:
        job = await scheduler.submit(zero_shot_request(2, "a"))
        needs = job.utterances[0].needs
        scheduler.cancel(job)
    async with engine(2, greedy, memory_bytes=needs // 4) as scheduler:  # one at a time
        most = 0
        jobs = [await scheduler.submit(zero_shot_request(2, "a")) for _ in range(3)]
        begun = [job.utterances[0] for job in jobs]
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2, "a"))
        assert (refusal.value.code, refusal.value.status) == ("overloaded", 429)

        async def watch() -> None:
            nonlocal most
            while scheduler.jobs:
                most = max(most, sum(utterance.reserved is not None for utterance in begun))
                await asyncio.sleep(0.001)

        watcher = asyncio.create_task(watch())
        for job in jobs:
            assert [frame async for frame in job.frames()][-1].kind is FrameKind.END
        await watcher
        assert most == 1


async def test_an_idle_engine_sleeps() -> None:
    async with engine(2, greedy) as scheduler:
        await speak(scheduler, zero_shot_request(2, "a"))
        await asyncio.sleep(0.1)  # the last frame that was read wakes it once more
        decisions: list[object] = []
        decide = scheduler._next_step
        scheduler._next_step = lambda: decisions.append(1) or decide()  # type: ignore[method-assign,func-returns-value]
        await asyncio.sleep(0.3)
        assert not decisions  # it waits for an event, it does not poll
        await speak(scheduler, zero_shot_request(2, "a"))
        assert decisions


async def test_a_loop_that_fails_is_noticed() -> None:
    scheduler = Scheduler(tiny_model(2))
    died = asyncio.Event()
    scheduler._next_step = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    scheduler.start(on_death=died.set)
    await asyncio.wait_for(died.wait(), 5)
    await scheduler.close()


async def test_a_speed_that_this_model_cannot_stream_is_refused_and_the_next_request_served() -> None:
    async with engine(2, greedy) as scheduler:
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2, speed=20.0))
        assert refusal.value.code == "invalid_value"
        blocks, _ = await speak(scheduler, zero_shot_request(2, "a"))
        assert blocks


async def test_a_speed_that_no_model_can_do_is_refused_and_the_next_request_served() -> None:
    async with engine(2, greedy) as scheduler:
        with pytest.raises(RequestError) as refusal:
            await scheduler.submit(zero_shot_request(2, speed=0.0, stream=False))
        assert refusal.value.code == "invalid_value"
        blocks, _ = await speak(scheduler, zero_shot_request(2, "a", stream=False))
        assert blocks


async def test_a_new_request_does_not_wait_for_a_long_one() -> None:
    async with engine(2, greedy, max_live=1) as scheduler:
        request = zero_shot_request(2, "Hello world.")
        long = await scheduler.submit(replace(request, segments=request.segments * 6))
        await until(lambda: long.decoding >= 1)
        await speak(scheduler, zero_shot_request(2, "a"))
        assert long.decoding <= 3
        scheduler.cancel(long)
