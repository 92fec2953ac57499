"""Reference audio becomes the conditioning that the genuine front end makes of it."""

from __future__ import annotations

import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from audio.decode import Audio, decode_reference
from models.config import load_config
from models.errors import ModelError
from models.prompt_features import PromptModels, available_providers
from tests.golden import golden
from tests.models.prompt_arrays import compute_here, compute_reproducibly

FLOATS = ["fe.spk_embedding", "zs.flow_embedding", "zs.prompt_speech_feat"]
TOKENS = ["fe.speech_token_raw", "zs.llm_prompt_speech_token", "zs.flow_prompt_speech_token"]


@pytest.fixture(scope="module", params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def models(version: int) -> PromptModels:
    return PromptModels.load(load_config(golden(version).dir))


@pytest.fixture(scope="module")
def prompt(version: int) -> Audio:
    return decode_reference((golden(version).dir / "prompt.wav").read_bytes())


@pytest.mark.parametrize("name", FLOATS)
def test_conditioning_equals_the_golden_one(version: int, name: str) -> None:
    expected = golden(version).array(name)
    found = compute_reproducibly(version)[name]
    assert found.shape == expected.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", TOKENS)
def test_speech_tokens_are_the_golden_ones_on_any_cpu(version: int, name: str) -> None:
    found = compute_here(version)[name]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, golden(version).array(name))


@pytest.mark.parametrize("name", ["fe.spk_embedding", "zs.flow_embedding"])
def test_x_vector_is_the_golden_one_on_any_cpu(version: int, name: str) -> None:
    np.testing.assert_allclose(compute_here(version)[name], golden(version).array(name), rtol=0, atol=1e-5)


def test_two_mel_frames_go_with_each_token(models: PromptModels, prompt: Audio) -> None:
    for cut in range(0, 2000, 160):
        made = models.encode(prompt.samples[cut:], prompt.sample_rate)
        assert len(made.prompt_mel) == models.config.token_mel_ratio * len(made.prompt_tokens)


def test_voice_conversion_keeps_tokens_and_mel_whole(models: PromptModels, prompt: Audio) -> None:
    whole = models.encode(prompt.samples, prompt.sample_rate, align=False)
    assert (len(whole.prompt_tokens), len(whole.prompt_mel)) == (60, 119)
    np.testing.assert_array_equal(models.speech_tokens(prompt.samples, prompt.sample_rate), whole.prompt_tokens)


def test_source_of_voice_conversion_gives_its_golden_length(models: PromptModels, version: int) -> None:
    source = decode_reference((golden(version).dir / "source.wav").read_bytes())
    calls = golden(version).meta["e2e"]["vc"]["token2wav_calls(n_tokens,offset,stream,finalize)"]
    assert len(models.speech_tokens(source.samples, source.sample_rate)) == calls[0][0]


def test_clips_encoded_at_once_do_not_touch_each_other(models: PromptModels, prompt: Audio) -> None:
    clips = [prompt.samples * gain for gain in (1.0, 0.01, 0.3)] * 3
    alone = [models.encode(clip, prompt.sample_rate) for clip in clips[:3]]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda clip: models.encode(clip, prompt.sample_rate), clips))
    for i, made in enumerate(together):
        np.testing.assert_array_equal(made.prompt_tokens, alone[i % 3].prompt_tokens)
        np.testing.assert_array_equal(made.prompt_mel, alone[i % 3].prompt_mel)
        np.testing.assert_array_equal(made.embedding, alone[i % 3].embedding)


def test_read_only_audio_is_accepted_and_left_alone(models: PromptModels) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, 24000).astype(np.float32)
    samples.setflags(write=False)
    before = samples.copy()
    models.encode(samples, 24000)
    np.testing.assert_array_equal(samples, before)


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        (np.zeros(100, np.float32), 16000),
        (np.zeros(31 * 16000, np.float32), 16000),
        (np.zeros(16000, np.float32), 8000),
        (np.zeros((2, 16000), np.float32), 16000),
        (np.full(16000, np.nan, np.float32), 16000),
    ],
    ids=["too short", "too long", "8 kHz", "stereo", "nan"],
)
def test_unusable_audio_is_refused(models: PromptModels, samples: np.ndarray, rate: int) -> None:
    for encode in (models.encode, models.speech_tokens):
        with pytest.raises(ModelError) as error:
            encode(samples, rate)
        assert error.value.code == "model_input_invalid"


def test_digital_silence_still_gives_finite_features(models: PromptModels) -> None:
    made = models.encode(np.zeros(16000, np.float32), 16000)
    assert np.isfinite(made.prompt_mel).all() and np.isfinite(made.embedding).all()


@pytest.mark.parametrize("missing", ["campplus.onnx", "speech_tokenizer_v{}.onnx"])
def test_a_missing_file_is_named(tmp_path: Path, version: int, missing: str) -> None:
    config = load_config(golden(version).dir)
    names = ["campplus.onnx", f"speech_tokenizer_v{version}.onnx"]
    for name in names:
        if name != missing.format(version):
            shutil.copy(config.root / name, tmp_path / name)
    with pytest.raises(ModelError, match=missing.format(version)) as error:
        PromptModels.load(dataclasses.replace(config, root=tmp_path))
    assert error.value.code == "model_file_missing"


@pytest.mark.parametrize("content", ["empty", "swapped"])
def test_a_wrong_file_is_named(tmp_path: Path, version: int, content: str) -> None:
    config = load_config(golden(version).dir)
    tokenizer = f"speech_tokenizer_v{version}.onnx"
    shutil.copy(config.root / "campplus.onnx", tmp_path / "campplus.onnx")
    if content == "empty":
        (tmp_path / tokenizer).touch()
    else:
        shutil.copy(config.root / "campplus.onnx", tmp_path / tokenizer)
    with pytest.raises(ModelError, match=tokenizer) as error:
        PromptModels.load(dataclasses.replace(config, root=tmp_path))
    assert error.value.code == "checkpoint_unreadable"


def test_an_x_vector_of_another_width_is_refused(models: PromptModels, prompt: Audio) -> None:
    other = dataclasses.replace(models, config=dataclasses.replace(models.config, spk_embed_dim=256))
    with pytest.raises(ModelError) as error:
        other.encode(prompt.samples, prompt.sample_rate)
    assert error.value.code == "checkpoint_shape"


def test_providers_are_those_present_with_cuda_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(available_providers()) <= set(onnxruntime.get_available_providers())
    monkeypatch.setattr(
        onnxruntime,
        "get_available_providers",
        lambda: ["TensorrtExecutionProvider", "CPUExecutionProvider", "CUDAExecutionProvider"],
    )
    assert available_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_the_thread_count_is_a_setting() -> None:
    config = load_config(golden(2).dir)
    for threads in (1, 2):
        models = PromptModels.load(config, threads=threads)
        for session in (models.tokenizer, models.speaker):
            assert session.get_session_options().intra_op_num_threads == threads
