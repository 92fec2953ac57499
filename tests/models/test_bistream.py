"""Text that arrives in pieces is fed and decoded as by the genuine code, and in better order by default."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.bistream import Bistream
from models.errors import ModelError
from models.speech_lm import SpeechLM
from models.tokenizer import Tokenizer
from tests.golden import Golden, golden
from tests.models.lm import load


def greedy(lm: SpeechLM) -> Callable[[torch.Tensor], int]:
    """Draws the likeliest speech token, never a special id."""
    return lambda logp: int(logp[: lm.speech_token_size].argmax())


class Run:
    """Drives a Bistream as an engine does, and records what was fed and spoken."""

    def __init__(self, stream: Bistream, lm: SpeechLM, draw: Callable[[torch.Tensor], int] | None = None) -> None:
        self.stream, self.lm, self.draw = stream, lm, draw or greedy(lm)
        self.cache = lm.new_cache()
        self.slot = self.cache.add()
        self.fed: list[torch.Tensor] = []
        self.spoken: list[int] = []

    def until_it_waits(self) -> None:
        while (step := self.stream.next_input()) is not None:
            if isinstance(step, int):
                logp = self.lm.decode(self.cache, torch.tensor([step]))[0]
                step = self.lm.embed_speech([step])
            else:
                logp = self.lm.extend(self.cache, self.slot, step)
            self.fed.append(step)
            forced = self.stream.forced
            token = self.stream.accept(self.draw(logp) if forced is None else forced)
            if token is not None:
                self.spoken.append(token)


def golden_stream(
    version: int, *, prompt: bool, compat: bool = True
) -> tuple[Golden, SpeechLM, Bistream, list[list[int]]]:
    reference = golden(version)
    lm = load(version)
    tokenizer = Tokenizer.load(reference.dir, version)
    texts = [tokenizer.encode(text) for text in reference.meta["bistream"]["texts"]]
    stream = Bistream(
        lm,
        reference.array("zs.prompt_text")[0].tolist() if prompt else [],
        reference.array("zs.llm_prompt_speech_token")[0].tolist() if prompt else [],
        end_of_prompt_id=tokenizer.end_of_prompt_id,
        upstream_compat=compat,
    )
    return reference, lm, stream, texts


@pytest.mark.parametrize(("version", "prompt", "name"), [(2, True, "bi"), (3, True, "bi"), (2, False, "bi_noprompt")])
@pytest.mark.parametrize("portion", ["token", "text", "all"])
def test_golden_bistream(version: int, prompt: bool, name: str, portion: str) -> None:
    reference, lm, stream, texts = golden_stream(version, prompt=prompt)
    after_text: list[int] = []

    def draw(logp: torch.Tensor) -> int:  # upstream's end was forced 12 tokens after the text
        if complete:
            after_text.append(1)
        return lm.eos if len(after_text) > 12 else greedy(lm)(logp)

    run = Run(stream, lm, draw)
    complete = False
    flat = [token for text in texts for token in text]
    portions = {"token": [[token] for token in flat], "text": texts, "all": [flat]}[portion]
    for ids in portions:
        stream.push(ids)
        run.until_it_waits()
    complete = True
    stream.finish()
    run.until_it_waits()

    assert stream.done
    assert [len(step) for step in run.fed] == reference.array(f"llm.{name}.step_lens").tolist()
    np.testing.assert_array_equal(torch.cat(run.fed).numpy(), reference.array(f"llm.{name}.inputs")[0])
    assert run.spoken == reference.array(f"llm.{name}.tokens").tolist()


@pytest.mark.parametrize("version", [2, 3])
def test_an_utterance_that_finds_no_end_is_cut_at_its_limit(version: int) -> None:
    _, lm, stream, texts = golden_stream(version, prompt=True, compat=False)
    run = Run(stream, lm)
    stream.push(texts[0])
    stream.finish()
    run.until_it_waits()
    assert stream.done
    assert len(run.spoken) == lm.max_ratio * len(texts[0])


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_is_fed_twice(version: int) -> None:
    _, lm, stream, texts = golden_stream(version, prompt=False, compat=False)
    run = Run(stream, lm)
    for text in texts:
        stream.push(text)
        run.until_it_waits()
    spoken = len(run.spoken)
    stream.finish()
    step = stream.next_input()
    assert isinstance(step, torch.Tensor)
    assert torch.equal(step[-1:], lm.task)
    rest = sum(map(len, texts)) - 5 * (spoken // 15)
    assert len(step) == rest + 1
    assert not torch.equal(step[:1], lm.embed_speech([run.spoken[-1]]))


@pytest.mark.parametrize("version", [2, 3])
def test_no_speech_before_the_first_text(version: int) -> None:
    reference, lm, _, texts = golden_stream(version, prompt=True)
    prompt = reference.array("zs.prompt_text")[0].tolist()
    end = reference.meta["llm"]["eop_id"]
    stream = Bistream(lm, prompt if version == 2 else prompt[: prompt.index(end) + 1], [], end_of_prompt_id=end)
    run = Run(stream, lm)
    short = [] if version == 2 else texts[0][:4]
    stream.push(short)
    run.until_it_waits()
    assert run.spoken == []
    stream.push(texts[0])
    run.until_it_waits()
    assert len(run.spoken) >= 15


@pytest.mark.parametrize("version", [2, 3])
def test_prompt_speech_that_the_text_cannot_carry_follows_the_task(version: int) -> None:
    reference, lm, stream, texts = golden_stream(version, prompt=True, compat=False)
    speech = reference.array("zs.llm_prompt_speech_token")[0].tolist()
    stream.push(texts[0][:1])
    stream.finish()
    step = stream.next_input()
    assert isinstance(step, torch.Tensor)
    prompt = reference.array("zs.prompt_text")[0].tolist()
    transcript = prompt if version == 2 else prompt[prompt.index(reference.meta["llm"]["eop_id"]) + 1 :]
    left = len(speech) - 15 * ((len(transcript) + 1) // 5)
    assert torch.equal(step[-left:], lm.embed_speech(speech[-left:]))
    assert torch.equal(step[-left - 1 : -left], lm.task)


@pytest.mark.parametrize("version", [2, 3])
def test_only_fill_interrupts_and_only_eos_ends(version: int) -> None:
    _, lm, stream, texts = golden_stream(version, prompt=True, compat=False)
    allowed: list[set[int]] = []

    def draw(logp: torch.Tensor) -> int:
        masked = stream.mask(logp)
        allowed.append(set(masked.isfinite().nonzero()[:, 0].tolist()) & set(lm.stop_ids))
        return greedy(lm)(logp)

    run = Run(stream, lm, draw)
    stream.push([token for text in texts for token in text])
    run.until_it_waits()
    assert all(ids == {lm.fill} for ids in allowed)
    allowed.clear()
    stream.finish()
    run.until_it_waits()
    assert all(ids == {lm.eos} for ids in allowed)


def test_no_text_at_all_is_no_speech() -> None:
    _, _, stream, _ = golden_stream(2, prompt=True, compat=False)
    stream.finish()
    assert stream.done


def test_an_impossible_id_is_an_error() -> None:
    _, lm, stream, texts = golden_stream(2, prompt=True)
    stream.push(texts[0])
    with pytest.raises(ModelError):
        stream.accept(lm.eos)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(("prompt_text", "prompt_speech", "needed"), [(0, 0, 10), (10, 75, 20), (17, 125, 38)])
def test_a_prompt_is_told_before_the_text_so_a_long_one_delays_the_first_hop(
    version: int, prompt_text: int, prompt_speech: int, needed: int
) -> None:
    """A first hop is 28 speech tokens; what people say has fewer than 5 text tokens in 15 of speech."""
    lm = load(version)
    stream = Bistream(lm, [1] * prompt_text, [1] * prompt_speech, end_of_prompt_id=lm.text_vocab)
    given = spoken = 0
    while spoken < 28:
        stream.push([1])
        given += 1
        while spoken < 28 and stream.next_input() is not None:
            spoken += stream.accept(1 if stream.forced is None else stream.forced) is not None
    assert given == needed
