"""Audio that is made while decoding goes on is the audio that is made in turns with it, whoever leaves meanwhile."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models.cosyvoice import CosyVoice
from models.device import finish, own_stream, to_device, to_host
from models.token2wav import Token2Wav
from runners.frames import FrameKind
from runners.request import SpeechRequest
from runners.scheduler import Scheduler
from runners.settings import EngineSettings, engine_settings
from runners.warm_up import warm_up
from tests.golden import golden
from tests.models.tape import Recorder
from tests.runners.engine import engine, greedy, same_audio, speak, tiny_model, until, zero_shot_request

PATIENCE = 20.0  # seconds, for what happens at once


@contextmanager
def held(token2wav: Token2Wav, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The first synthesis waits, `entered`, until it is `released`."""
    gate = SimpleNamespace(entered=threading.Event(), released=threading.Event())
    original = token2wav.synthesize

    def synthesize(turns, *more):
        gate.entered.set()
        assert gate.released.wait(PATIENCE)
        return original(turns, *more)

    with monkeypatch.context() as patches:
        patches.setattr(token2wav, "synthesize", synthesize)
        try:
            yield gate
        finally:
            gate.released.set()


def _requests(version: int) -> list[SpeechRequest]:
    texts = ["Hello.", "a", "read this"]
    return [zero_shot_request(version, text, seed=index, stream=index % 2 == 0) for index, text in enumerate(texts)]


@pytest.mark.parametrize("version", [3])
async def test_requests_that_come_and_go_sound_as_without(version: int) -> None:
    chance = random.Random(version)
    requests = _requests(version)
    async with engine(version, greedy) as scheduler:
        alone = [await speak(scheduler, request) for request in requests]

    async def live(scheduler: Scheduler, request: SpeechRequest, expected: np.ndarray, patience: int) -> None:
        await asyncio.sleep(chance.random() / 4)
        job = await scheduler.submit(request)
        blocks: list[np.ndarray] = []
        async for frame in job.frames():
            if frame.kind is FrameKind.AUDIO:
                blocks.append(np.frombuffer(frame.payload, np.float32))
                if len(blocks) == patience:
                    scheduler.cancel(job)
                    break
        heard = np.concatenate(blocks)
        assert same_audio(heard, expected[: len(heard)])
        assert len(blocks) == patience or len(heard) == len(expected)

    async with engine(version, greedy, overlap=True, max_live=3) as scheduler:
        await asyncio.gather(
            *(
                live(scheduler, request, np.concatenate(blocks), patience)
                for request, (blocks, _) in zip(requests, alone, strict=True)
                for patience in (99, 1)
            )
        )
        await until(lambda: not scheduler.jobs and scheduler.loop.aside is None)
        assert scheduler._memory.reserved == 0
        assert not scheduler.decoder.live


async def test_decoding_goes_on_while_audio_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(2)
    async with engine(2, greedy, overlap=True) as scheduler:
        with held(model.token2wav, monkeypatch) as gate:
            speaking = asyncio.create_task(speak(scheduler, zero_shot_request(2, "Hello world.")))
            await until(gate.entered.is_set)
            steps = scheduler.decoder.steps
            await until(lambda: scheduler.decoder.steps >= steps + 10)
        blocks, end = await speaking
    assert sum(map(len, blocks)) == end["samples"]


async def test_one_that_is_cancelled_while_its_audio_is_made_gives_its_memory_back_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(2)
    async with engine(2, greedy) as scheduler:
        expected, _ = await speak(scheduler, zero_shot_request(2, "a"))
    async with engine(2, greedy, overlap=True) as scheduler:
        with held(model.token2wav, monkeypatch) as gate:
            job = await scheduler.submit(zero_shot_request(2))
            await until(gate.entered.is_set)
            scheduler.cancel(job)
            await until(lambda: job not in scheduler.jobs)
            assert not scheduler.decoder.live  # its slot is free at once
            assert scheduler._memory.reserved == job.utterances[0].needs  # but that memory is being used
            other = asyncio.create_task(speak(scheduler, zero_shot_request(2, "a")))
            await until(lambda: len(scheduler.decoder.live) == 1)
        heard, _ = await other
        assert job.samples_sent == 0
        assert scheduler._memory.reserved == 0
    assert same_audio(np.concatenate(heard), np.concatenate(expected))


async def test_one_that_fails_in_decoding_while_its_audio_is_made_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, broken = tiny_model(2), threading.Event()

    def sampler(logp, draws):
        return [MemoryError("injected")] * len(draws) if broken.is_set() else greedy(logp, draws)

    async with engine(2, sampler, overlap=True) as scheduler:
        with held(model.token2wav, monkeypatch) as gate:
            job = await scheduler.submit(zero_shot_request(2))
            await until(gate.entered.is_set)
            broken.set()
            await until(lambda: not scheduler.jobs)
        frames = [frame async for frame in job.frames()]
        await until(lambda: scheduler.loop.aside is None)
        assert [frame.kind for frame in frames] == [FrameKind.ERROR]
        assert job.samples_sent == 0
        assert scheduler._memory.reserved == 0
        broken.clear()
        assert (await speak(scheduler, zero_shot_request(2, "a")))[0]


async def test_a_step_that_fails_as_a_whole_ends_its_first_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(2)
    original, calls = model.token2wav.synthesize, []

    def synthesize(turns, *more):
        calls.append(len(turns))
        if len(calls) == 1:
            raise MemoryError("injected")
        return original(turns, *more)

    monkeypatch.setattr(model.token2wav, "synthesize", synthesize)
    async with engine(2, greedy, overlap=True) as scheduler:
        ends = [
            end for _, end in await asyncio.gather(*(speak(scheduler, zero_shot_request(2, "a")) for _ in range(3)))
        ]
        assert scheduler._memory.reserved == 0
    assert sorted("code" in end for end in ends) == [False, False, True]


async def test_an_engine_that_closes_waits_for_the_audio_that_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(2)
    scheduler = Scheduler(model, EngineSettings(overlap=True), greedy)
    scheduler.start()
    with held(model.token2wav, monkeypatch) as gate:
        job = await scheduler.submit(zero_shot_request(2))
        await until(gate.entered.is_set)
        closing = asyncio.create_task(scheduler.close())
        frames = [frame async for frame in job.frames()]
        assert frames[-1].json()["code"] == "draining"
    await asyncio.wait_for(closing, PATIENCE)


async def test_graphs_and_overlap_together_sound_as_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tapes stand for the graphs of decode steps and of the flow, which the warm-up captures."""
    model, recorder = CosyVoice.load(golden(3).dir), Recorder()
    monkeypatch.setattr("models.decode_graphs.capture_cuda", recorder)
    monkeypatch.setattr(
        model.token2wav.flow, "use_graphs", partial(model.token2wav.flow.use_graphs, recorder, (64, 256))
    )
    requests = [zero_shot_request(3, "Hello."), zero_shot_request(3, "a", stream=False)]
    heard = []
    for settings in ({}, {"cuda_graphs": True, "overlap": True}):
        async with engine(3, greedy, model, **settings) as scheduler:
            if settings:
                await warm_up(scheduler)
            heard.append(await asyncio.gather(*(speak(scheduler, request) for request in requests)))
    assert recorder.captured > 2 * 2  # of decode steps, one and two rows; the rest are the flow's
    for (blocks, end), (others, other_end) in zip(*heard, strict=True):
        assert end == other_end
        assert same_audio(np.concatenate(blocks), np.concatenate(others))


@pytest.mark.parametrize(("value", "overlap"), [("", False), ("0", False), ("1", True)])
def test_overlap_is_off_unless_it_is_asked_for(value: str, overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYSERVE_OVERLAP", value)
    assert engine_settings(tiny_model(2)).overlap == overlap


def test_copies_on_the_cpu_are_the_tensors_themselves() -> None:
    cpu, tensor = torch.device("cpu"), torch.arange(3.0)
    assert to_device(tensor, cpu) is tensor
    assert to_host([tensor, tensor[:0]])[0] is tensor
    assert to_host([]) == []
    own_stream(cpu)
    finish(cpu)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_copies_to_and_from_a_gpu_are_complete() -> None:
    device = torch.device("cuda")
    own_stream(device)
    tensors = [torch.randn(1 << shift) for shift in (0, 10, 20)]
    back = to_host([to_device(tensor, device) * 2 for tensor in tensors])
    assert all(torch.equal(one, 2 * tensor) for one, tensor in zip(back, tensors, strict=True))
