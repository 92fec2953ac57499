"""What the flow of either version must do, as tests that test_flow_v2 and test_flow_v3 run on their own version."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from models.cfm import MAX_FRAMES, fixed_noise
from models.errors import ModelError
from models.flow import Piece
from models.packing import Memory, Packing, Span
from tests.golden import golden
from tests.models.flow_stages import CASES, array, close, frames, prompt, run, target, tiny_flow

LAST_STEP = 9


class FlowContract:
    version: int

    def test_the_noise_is_the_fixed_noise_of_seed_0(self) -> None:
        expected = frames(self.version, "flow.rand_noise_first600")[0]
        assert torch.equal(tiny_flow(self.version).decoder.noise(0, 600, expected), expected)
        whole = fixed_noise(80).T.contiguous().numpy().tobytes()
        assert hashlib.sha256(whole).hexdigest() == golden(self.version).meta["rand_noise"]["sha256_float32_le"]

    @pytest.mark.parametrize("kind", ["full", "stream"])
    def test_the_estimator_alone(self, kind: str) -> None:
        flow, version = tiny_flow(self.version), self.version
        estimator: Any = flow.decoder.estimator
        x = frames(version, "est.x")
        span = Span(x.shape[1], Memory() if kind == "stream" else None)
        spk = array(version, "est.spks")[:, None].expand(-1, x.shape[1], -1)
        with torch.inference_mode():
            given = frames(version, "est.mu"), spk, frames(version, "est.cond")
            fixed = estimator.condition(*given, Packing([span], flow.chunk))
            time = estimator.time_conditioning(array(version, "est.t"))
            output = estimator(x, fixed, time, Packing([span], flow.chunk))
        assert close(output, frames(version, f"est.out_{kind}"))

    def test_the_speaker_projection(self) -> None:
        _, _, embedding = prompt(self.version)
        with torch.inference_mode():
            assert close(tiny_flow(self.version).speaker(embedding[None]), array(self.version, "flow.full.spk"))

    @pytest.mark.parametrize("case", CASES)
    def test_the_mean_frames(self, case: str) -> None:
        assert close(run(self.version, case).mu, frames(self.version, f"flow.{case}.mu"))

    @pytest.mark.parametrize("case", CASES)
    def test_each_step_of_the_solver(self, case: str) -> None:
        steps = run(self.version, case).steps
        times = array(self.version, f"flow.{case}.est_t")
        assert len(steps) == len(times) == LAST_STEP + 1
        assert torch.equal(torch.tensor(tiny_flow(self.version).decoder.times), times[:, 0])
        assert close(steps[0][1], frames(self.version, f"flow.{case}.est_out_step0"))
        assert close(steps[LAST_STEP][0][:1], frames(self.version, f"flow.{case}.est_in_last"))
        assert close(steps[LAST_STEP][1], frames(self.version, f"flow.{case}.est_out_last"))

    @pytest.mark.parametrize("case", CASES)
    def test_the_mel(self, case: str) -> None:
        assert close(run(self.version, case).mel, array(self.version, f"flow.{case}.mel")[0])

    def test_the_mel_without_a_prompt(self) -> None:
        _, _, embedding = prompt(self.version)
        nothing = torch.zeros(0, dtype=torch.int64)
        ((mel, _),) = tiny_flow(self.version).inference(
            [Piece(target(self.version).long(), nothing, torch.zeros(0, 80), embedding)]
        )
        assert close(mel, array(self.version, "flow.noprompt.mel")[0])

    def test_more_frames_than_there_is_noise_for_are_refused(self) -> None:
        flow = tiny_flow(self.version)
        with pytest.raises(ModelError) as caught:
            flow.decoder.noise(MAX_FRAMES, MAX_FRAMES + 1, torch.zeros(1))
        assert caught.value.code == "model_input_invalid"
