"""The speech language model gives the genuine inputs, log-probabilities and tokens, alone and in a batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from models.config import load_config
from models.errors import ModelError
from models.precision import int8_supported
from models.sampling import ids_below_min_length, mask_ids, ras_sample
from models.speech_lm import KVCache, SpeechLM
from tests.golden import Golden, golden
from tests.models.lm import load, prompt_speech, text_ids

VERSIONS = [2, 3]


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """Within 1e-5, and three float32 steps (2e-6 each) more where log-probs reach -28.

    The genuine values themselves are 9e-6 away from a float64 computation.
    """
    np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=2e-7)


def generate(
    lm: SpeechLM,
    inputs: torch.Tensor,
    pick: Callable[[torch.Tensor, int, Sequence[int]], int],
    steps: int,
) -> tuple[list[int], np.ndarray]:
    """Tokens and the log-probs they were picked from; `pick(logp, step, history)`. Ends before a stop id."""
    cache = lm.new_cache()
    logp = lm.extend(cache, cache.add(), inputs)
    tokens: list[int] = []
    seen = []
    for step in range(steps):
        seen.append(logp.numpy())
        token = pick(logp, step, tokens)
        if token in lm.stop_ids:
            break
        tokens.append(token)
        logp = lm.decode(cache, torch.tensor([token]))[0]
    return tokens, np.stack(seen)


def upstream_greedy(lm: SpeechLM, min_length: int) -> Callable[[torch.Tensor, int, Sequence[int]], int]:
    forbidden = ids_below_min_length(lm, upstream_compat=True)
    return lambda logp, step, _: int((mask_ids(logp, forbidden) if step < min_length else logp).argmax())


def case(reference: Golden, version: int, name: str) -> tuple[list[int], list[int]]:
    """Text ids and prompt speech of one golden case."""
    if name == "zs":
        return text_ids(version), prompt_speech(version)
    if name == "xl":
        return reference.array("tok.cross_lingual").tolist(), []
    return [*reference.array("tok.instruct").tolist(), *reference.array("tok.tts").tolist()], []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["zs", "xl", "instruct2"])
def test_inputs_are_exactly_the_golden_ones(version: int, name: str) -> None:
    reference = golden(version)
    inputs = load(version).build_input(*case(reference, version, name))
    np.testing.assert_array_equal(inputs.numpy(), reference.array(f"llm.{name}.lm_input")[0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["zs", "xl", "instruct2"])
def test_log_probs_and_greedy_tokens_are_the_golden_ones(version: int, name: str) -> None:
    reference = golden(version)
    lm = load(version)
    text, speech = case(reference, version, name)
    spoken = reference.array("tok.cross_lingual" if name == "xl" else "tok.tts")
    expected = reference.array(f"llm.{name}.greedy_tokens")
    minimum, _ = lm.length_limits(len(spoken))
    tokens, logp = generate(lm, lm.build_input(text, speech), upstream_greedy(lm, minimum), len(expected))
    assert tokens == expected.tolist()
    assert_close(logp, reference.array(f"llm.{name}.logp"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_step_feeds_the_embedding_of_the_token_before(version: int) -> None:
    reference = golden(version)
    tokens = reference.array("llm.zs.greedy_tokens")
    steps = reference.array("llm.zs.step_inputs")[0]
    np.testing.assert_array_equal(load(version).embed_speech(tokens[: len(steps)].tolist()).numpy(), steps)


@pytest.mark.parametrize("version", VERSIONS)
def test_sampled_tokens_are_the_golden_ones(version: int) -> None:
    reference = golden(version)
    lm = load(version)
    sampling = load_config(reference.dir).sampling
    minimum, maximum = lm.length_limits(len(reference.array("zs.text")[0]))
    forbidden = ids_below_min_length(lm, upstream_compat=True)
    generator = torch.Generator().manual_seed(777)

    def pick(logp: torch.Tensor, step: int, history: Sequence[int]) -> int:
        return ras_sample(mask_ids(logp, forbidden) if step < minimum else logp, history, sampling, generator)

    expected = reference.array("llm.zs.ras_tokens_seed777").tolist()
    tokens, logp = generate(lm, lm.build_input(text_ids(version), prompt_speech(version)), pick, min(maximum, 60))
    assert tokens == expected
    assert_close(logp[:8], reference.array("llm.zs.ras_logp_first8"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("compat", [True, False])
def test_an_early_end_is_refused_below_the_minimum_length(version: int, compat: bool) -> None:
    """Upstream's version 3 masks the wrong id, so there an end comes at once; ours waits for the minimum."""
    reference = golden(version)
    lm = load(version)
    expected = reference.array("llm.zs.eoslover_tokens").tolist()
    minimum = len(reference.array("zs.text")[0])  # the golden run had a ratio of 1
    forbidden = ids_below_min_length(lm, upstream_compat=compat)

    def wants_to_end(logp: torch.Tensor, step: int, history: Sequence[int]) -> int:
        masked = mask_ids(logp, forbidden) if step < minimum else logp
        if len(history) >= 3 and bool(masked[lm.eos].isfinite()):
            return lm.eos
        return int(masked[: lm.speech_token_size].argmax())

    tokens, _ = generate(lm, lm.build_input(text_ids(version), prompt_speech(version)), wants_to_end, 2 * minimum)
    if compat:
        assert tokens == expected
    else:
        assert len(tokens) == minimum
        assert tokens[: len(expected)] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_special_ids_are_the_golden_ones(version: int) -> None:
    reference = golden(version).meta["llm"]
    lm = load(version)
    assert (lm.eos, lm.fill, lm.text_vocab) == (reference["eos"], reference["fill"], reference["vocab"])
    assert [lm.stop_ids[0], lm.stop_ids[-1]] == reference["stop_token_ids"]


# --- batches


def ragged_inputs(lm: SpeechLM, version: int) -> list[torch.Tensor]:
    text, speech = text_ids(version), prompt_speech(version)
    return [lm.build_input(text[: 3 + 4 * i], speech[: 11 * i]) for i in range(5)]


def alone(lm: SpeechLM, inputs: torch.Tensor, tokens: Sequence[int]) -> np.ndarray:
    cache = lm.new_cache(slots=1)
    seen = [lm.extend(cache, cache.add(), inputs)]
    seen += [lm.decode(cache, torch.tensor([token]))[0] for token in tokens]
    return torch.stack(seen).numpy()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_ragged_batch_equals_each_sequence_alone(version: int) -> None:
    lm = load(version)
    inputs = ragged_inputs(lm, version)
    tokens = torch.randint(lm.speech_token_size, (12, len(inputs)), generator=torch.Generator().manual_seed(1))
    cache = lm.new_cache(slots=2)  # grows
    first = [lm.extend(cache, cache.add(), x) for x in inputs]
    batched = torch.stack([torch.stack(first), *(lm.decode(cache, step) for step in tokens)]).numpy()
    for i, x in enumerate(inputs):
        assert_close(batched[:, i], alone(lm, x, tokens[:, i].tolist()))


@pytest.mark.parametrize("version", VERSIONS)
def test_sequences_that_join_and_leave_do_not_change_the_others(version: int) -> None:
    lm = load(version)
    inputs = ragged_inputs(lm, version)
    generator = torch.Generator().manual_seed(2)
    cache = lm.new_cache(slots=2)
    live: list[int] = []  # the sequence in each slot
    fed: dict[int, list[int]] = {i: [] for i in range(len(inputs))}
    seen: dict[int, list[torch.Tensor]] = {}

    def join(sequence: int) -> None:
        slot = cache.add()
        assert slot == len(live)
        live.append(sequence)
        seen[sequence] = [lm.extend(cache, slot, inputs[sequence])]

    def leave(slot: int) -> None:
        moved = cache.remove(slot)
        last = live.pop()
        if slot < len(live):
            assert moved == len(live)
            live[slot] = last
        else:
            assert moved is None

    def step(times: int) -> None:
        for _ in range(times):
            tokens = torch.randint(lm.speech_token_size, (len(live),), generator=generator)
            for sequence, token, logp in zip(live, tokens.tolist(), lm.decode(cache, tokens), strict=True):
                fed[sequence].append(token)
                seen[sequence].append(logp)

    join(4)
    step(3)
    join(0)
    join(3)
    step(4)
    leave(0)  # the longest, with a shorter one moving into its place
    step(2)
    join(1)
    join(2)
    step(5)
    leave(len(live) - 1)
    step(3)
    leave(1)
    step(2)
    for i, x in enumerate(inputs):
        assert_close(torch.stack(seen[i]).numpy(), alone(lm, x, fed[i]))


def test_a_live_sequence_can_be_extended() -> None:
    lm = load(2)
    inputs = lm.build_input(text_ids(2), prompt_speech(2))
    whole = alone(lm, inputs, [])[0]
    cache = lm.new_cache()
    other, slot = cache.add(), cache.add()
    lm.extend(cache, other, inputs[:7])
    for part in inputs.split([1, 30, 1, len(inputs) - 32]):
        logp = lm.extend(cache, slot, part)
    assert_close(logp.numpy(), whole)


def test_a_sequence_that_went_non_finite_leaves_nothing_behind() -> None:
    lm = load(2)
    inputs = lm.build_input(text_ids(2), prompt_speech(2))
    cache = lm.new_cache()
    for x in (torch.full_like(inputs, torch.nan), inputs, inputs[:20]):
        lm.extend(cache, cache.add(), x)
    assert not lm.decode(cache, torch.tensor([1, 1, 1]))[0].isfinite().any()
    cache.remove(0)
    lm.extend(cache, cache.add(), inputs[:5])
    assert lm.decode(cache, torch.tensor([1, 1, 1])).isfinite().all()


def test_sequences_grow_beyond_what_was_reserved() -> None:
    lm = load(2)
    inputs = lm.build_input(text_ids(2) * 30)
    tokens = list(range(40))
    cache = KVCache(2, 2, 16, slots=1, capacity=8)
    seen = [lm.extend(cache, cache.add(), inputs)]
    seen += [lm.decode(cache, torch.tensor([token]))[0] for token in tokens]
    assert_close(torch.stack(seen).numpy(), alone(lm, inputs, tokens))


# --- reduced precision

REDUCED = [
    torch.bfloat16,
    pytest.param(torch.int8, marks=pytest.mark.skipif(not int8_supported(), reason="no AVX-512 VNNI here")),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", REDUCED)
def test_reduced_precision_stays_close(version: int, dtype: torch.dtype) -> None:
    exact, lm = load(version), SpeechLM.load(load_config(golden(version).dir), dtype=dtype)
    inputs, tokens = exact.build_input(text_ids(version), prompt_speech(version)), list(range(0, 6000, 100))
    expected, logp = (alone(each, inputs, tokens) for each in (exact, lm))
    assert logp.dtype == np.float32
    probable = expected > -12
    assert np.abs(logp - expected)[probable].mean() < 0.1
    assert np.abs(logp - expected)[probable].max() < 1.5
    assert (logp.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", REDUCED)
def test_reduced_precision_gives_a_sequence_the_same_in_any_batch(version: int, dtype: torch.dtype) -> None:
    """To the bit where the processor has units for it: rounding makes a large difference of the least one."""
    lm = SpeechLM.load(load_config(golden(version).dir), dtype=dtype)
    inputs = ragged_inputs(lm, version)
    tokens = torch.randint(lm.speech_token_size, (40, len(inputs)), generator=torch.Generator().manual_seed(3))
    cache = lm.new_cache(slots=2)
    first = [lm.extend(cache, cache.add(), x) for x in inputs]
    batched = torch.stack([torch.stack(first), *(lm.decode(cache, step) for step in tokens)]).numpy()
    exact = dtype == torch.int8 or torch.cpu._is_amx_tile_supported()
    for i, x in enumerate(inputs):
        np.testing.assert_allclose(batched[:, i], alone(lm, x, tokens[:, i].tolist()), atol=0 if exact else 0.3, rtol=0)


def test_the_cache_of_reduced_precision_takes_half_the_memory() -> None:
    lm = SpeechLM.load(load_config(golden(2).dir), dtype=torch.bfloat16)
    assert lm.new_cache().dtype == torch.bfloat16
    assert load(2).new_cache().dtype == torch.float32


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's account of mappings")
@pytest.mark.parametrize("dtype", [torch.float32, *REDUCED])
def test_the_file_does_not_stay_in_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = folder_with(tmp_path, lambda s: s.update(_wide(s)))
    config = folder / "CosyVoice-BlankEN" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"intermediate_size": WIDE}))
    lm = SpeechLM.load(load_config(folder), dtype=dtype)
    cache = lm.new_cache()
    lm.extend(cache, cache.add(), lm.build_input([1, 2, 3]))
    layers = 2 * 3 * WIDE * 64 * 4
    assert _resident(folder / "llm.pt") < 0.3 * layers


WIDE = 8192


def _wide(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The feed-forward weights as WIDE as to outweigh the tables."""
    changed = {}
    for key in state:
        if ".mlp." in key:
            shape = (64, WIDE) if "down_proj" in key else (WIDE, 64)
            changed[key] = 0.01 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return changed


def _resident(path: Path) -> int:
    """Bytes of this process's memory that are pages of the file."""
    total, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            counted = line.endswith(str(path))
        elif counted and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


# --- bad input


@pytest.mark.parametrize("text", [[-1], [10**6]])
def test_a_text_id_outside_the_vocabulary_is_an_error(text: list[int]) -> None:
    with pytest.raises(ModelError) as caught:
        load(2).build_input(text)
    assert caught.value.code == "model_input_invalid"


def test_a_special_id_is_no_prompt_speech() -> None:
    with pytest.raises(ModelError) as caught:
        load(2).build_input([1], [load(2).eos])
    assert caught.value.code == "model_input_invalid"


def folder_with(tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy of the tiny version 2 folder, as far as the LM reads it, with a changed llm.pt."""
    source = golden(2).dir
    shutil.copytree(source / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    shutil.copy(source / "cosyvoice2.yaml", tmp_path)
    state = torch.load(source / "llm.pt", weights_only=True)
    change(state)
    torch.save(state, tmp_path / "llm.pt")
    return tmp_path


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        pytest.param(
            lambda s: s.pop("llm_decoder.bias"), "checkpoint_missing_key", "llm_decoder.bias", id="missing bias"
        ),
        pytest.param(
            lambda s: s.pop("speech_embedding.weight"),
            "checkpoint_missing_key",
            "speech_embedding.weight",
            id="missing table",
        ),
        pytest.param(lambda s: s.update(extra=torch.zeros(1)), "checkpoint_extra_key", "extra", id="extra"),
        pytest.param(
            lambda s: s.update({"llm.model.model.norm.weight": torch.zeros(3)}),
            "checkpoint_shape",
            "llm.model.model.norm.weight is [3] instead of [64]",
            id="shape",
        ),
        pytest.param(
            lambda s: s.update({"llm_decoder.bias": torch.zeros(6564, dtype=torch.int32)}),
            "checkpoint_dtype",
            "llm_decoder.bias is int32",
            id="dtype",
        ),
        pytest.param(
            lambda s: s.update({"speech_embedding.weight": torch.zeros(6562, 64)}),
            "checkpoint_shape",
            "speech_embedding.weight",
            id="too few speech ids",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], code: str, named: str
) -> None:
    with pytest.raises(ModelError) as caught:
        SpeechLM.load(load_config(folder_with(tmp_path, change)))
    assert caught.value.code == code
    assert "llm.pt" in caught.value.message
    assert named in caught.value.message


def test_the_text_head_may_be_there_or_not(tmp_path: Path) -> None:
    lm = SpeechLM.load(load_config(folder_with(tmp_path, lambda s: s.pop("llm.model.lm_head.weight"))))
    assert torch.equal(lm.build_input([1, 2]), load(2).build_input([1, 2]))


def test_a_half_precision_checkpoint_is_computed_in_float32(tmp_path: Path) -> None:
    lm = SpeechLM.load(
        load_config(folder_with(tmp_path, lambda s: s.update({key: value.half() for key, value in s.items()})))
    )
    assert {parameter.dtype for parameter in lm.parameters()} == {torch.float32}


@pytest.mark.parametrize("content", ["{", "{}", '{"hidden_size": "wide"}', "[]"])
def test_a_damaged_text_config_is_one_clear_error(tmp_path: Path, content: str) -> None:
    folder = folder_with(tmp_path, lambda s: None)
    (folder / "CosyVoice-BlankEN" / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        SpeechLM.load(load_config(folder))
    assert caught.value.code == "model_config_invalid"


@pytest.mark.parametrize("name", ["llm.pt", "CosyVoice-BlankEN/config.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = folder_with(tmp_path, lambda s: None)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=name) as caught:
        SpeechLM.load(load_config(folder))
    assert caught.value.code == "model_file_missing"


def test_heads_come_from_the_text_config(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, lambda s: None)
    path = folder / "CosyVoice-BlankEN" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_key_value_heads": 4}))
    with pytest.raises(ModelError) as caught:
        SpeechLM.load(load_config(folder))
    assert caught.value.code == "checkpoint_shape"


def test_the_speech_vocabulary_size_comes_from_the_yaml() -> None:
    config = load_config(golden(2).dir)
    lm = SpeechLM.load(replace(config, llm={**config.llm, "speech_token_size": 6560}))
    assert lm.stop_ids == range(6560, 6564)
