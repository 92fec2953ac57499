"""Compute the front end's arrays from a golden prompt.wav, here or on a CPU-independent code path.

MKL picks another FFT for each kind of CPU. Near the floor of a log spectrum that alone moves float32 results by
up to 7e-4, as far as the golden values are from exact ones. Under MKL_CBWR=COMPATIBLE every x86 CPU takes the
path on which the golden arrays were made, so there the comparison can be as strict as elsewhere.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from audio.decode import decode_reference
from audio.resample import resample
from models.config import load_config
from models.features import kaldi_fbank, prompt_mel, whisper_log_mel
from models.prompt_features import PromptModels
from tests.golden import golden

REPOSITORY = Path(__file__).resolve().parents[2]


def compute(version: int) -> dict[str, np.ndarray]:
    """The front end's arrays under their golden names, from prompt.wav alone."""
    folder = golden(version).dir
    config = load_config(folder)
    audio = decode_reference((folder / "prompt.wav").read_bytes())
    wav16k = resample(audio.samples, audio.sample_rate, 16000)[None]
    wav24k = resample(audio.samples, audio.sample_rate, config.mel.sampling_rate)[None]
    models = PromptModels.load(config)
    aligned = models.encode(audio.samples, audio.sample_rate)
    whole = models.encode(audio.samples, audio.sample_rate, align=False)
    return {
        "fe.wav16k": wav16k,
        "fe.wav24k": wav24k,
        "fe.whisper_mel": whisper_log_mel(torch.from_numpy(wav16k)).numpy(),
        "fe.fbank_raw": kaldi_fbank(torch.from_numpy(wav16k), subtract_mean=False).numpy(),
        "fe.fbank": kaldi_fbank(torch.from_numpy(wav16k)).numpy(),
        "fe.mel24k_raw": prompt_mel(torch.from_numpy(wav24k), config.mel).numpy()[None],
        "fe.speech_token_raw": whole.prompt_tokens[None],
        "fe.spk_embedding": whole.embedding[None],
        "zs.llm_prompt_speech_token": aligned.prompt_tokens[None],
        "zs.flow_prompt_speech_token": aligned.prompt_tokens[None],
        "zs.prompt_speech_feat": aligned.prompt_mel[None],
        "zs.flow_embedding": aligned.embedding[None],
    }


compute_here = functools.cache(compute)


@functools.cache
def compute_reproducibly(version: int) -> dict[str, np.ndarray]:
    """`compute` in a process of its own, on the code path that all x86 CPUs share; skips where there is no MKL."""
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch has no MKL: its FFT rounds differently from that of the golden arrays")
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.prompt_arrays", str(version)],
        cwd=REPOSITORY,
        env={**os.environ, "MKL_CBWR": "COMPATIBLE"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(np.load(io.BytesIO(done.stdout)))


if __name__ == "__main__":
    buffer = io.BytesIO()
    np.savez(buffer, **compute(int(sys.argv[1])))  # type: ignore[arg-type]
    sys.stdout.buffer.write(buffer.getvalue())
