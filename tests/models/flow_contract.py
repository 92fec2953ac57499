"""What the flow of either version must do, as tests that test_flow_v2 and test_flow_v3 run on their own version."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from models.cfm import MAX_FRAMES, fixed_noise
from models.errors import ModelError
from models.flow_layers import attention_mask
from tests.golden import golden
from tests.models.flow_stages import CASES, array, close, frames, prompt, run, target, tiny_flow

LAST_STEP = 9


class FlowContract:
    version: int

    def test_the_noise_is_the_fixed_noise_of_seed_0(self) -> None:
        expected = frames(self.version, "flow.rand_noise_first600")
        assert torch.equal(tiny_flow(self.version).decoder.noise(600, expected), expected)
        whole = fixed_noise(80).transpose(1, 2).contiguous().numpy().tobytes()
        assert hashlib.sha256(whole).hexdigest() == golden(self.version).meta["rand_noise"]["sha256_float32_le"]

    @pytest.mark.parametrize("kind", ["full", "stream"])
    def test_the_estimator_alone(self, kind: str) -> None:
        flow, version = tiny_flow(self.version), self.version
        estimator: Any = flow.decoder.estimator
        x = frames(version, "est.x")
        with torch.inference_mode():
            fixed = estimator.condition(
                frames(version, "est.mu"), array(version, "est.spks"), frames(version, "est.cond")
            )
            time = estimator.time_conditioning(array(version, "est.t"))
            mask = attention_mask(x.shape[1], flow.chunk if kind == "stream" else None, like=x)
            assert close(estimator(x, fixed, time, mask), frames(version, f"est.out_{kind}"))

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
        mel = tiny_flow(self.version).inference(
            target(self.version),
            torch.zeros(0, dtype=torch.int64),
            torch.zeros(0, 80),
            embedding,
            streaming=False,
            finalize=True,
        )
        assert close(mel, array(self.version, "flow.noprompt.mel")[0])

    @pytest.mark.parametrize(("streaming", "finalize"), CASES.values())
    def test_a_padded_batch_gives_what_each_item_gives_alone(self, streaming: bool, finalize: bool) -> None:
        flow, version = tiny_flow(self.version), self.version
        tokens, mel, embedding = prompt(version)
        items = [torch.cat((tokens, target(version))).long(), target(version)[:41].long()]
        lengths = torch.tensor([len(item) for item in items])
        ahead = 0 if finalize else flow.lookahead
        with torch.inference_mode():
            padded = torch.nn.utils.rnn.pad_sequence(items, batch_first=True, padding_value=77)
            mu = flow.encode(padded, streaming=streaming, finalize=finalize, lengths=lengths)
            valid = (lengths - ahead) * flow.mel_ratio
            spk = flow.speaker(torch.stack((embedding, embedding.flip(0))))
            cond = torch.zeros_like(mu)
            cond[0, : len(mel)] = mel
            chunk = flow.chunk if streaming else None
            both = flow.decoder.solve(mu, spk, cond, attention_mask(mu.shape[1], chunk, valid, like=mu))
            for row, item in enumerate(items):
                count = int(valid[row])
                alone = flow.encode(item[None], streaming=streaming, finalize=finalize)
                assert close(mu[row : row + 1, :count], alone)
                mask = attention_mask(count, chunk, like=mu)
                single = flow.decoder.solve(alone, spk[row : row + 1], cond[row : row + 1, :count], mask)
                assert close(both[row : row + 1, :count], single, 2e-5)

    def test_frames_of_complete_chunks_do_not_depend_on_what_follows(self) -> None:
        flow, version = tiny_flow(self.version), self.version
        tokens, mel, embedding = prompt(version)
        tokens, mel = tokens[:50], mel[:100]
        short = flow.inference(target(version)[:28], tokens, mel, embedding, streaming=True, finalize=False)
        long = flow.inference(target(version), tokens, mel, embedding, streaming=True, finalize=False)
        assert close(short[:, :50], long[:, :50], 2e-5)

    def test_more_frames_than_there_is_noise_for_are_refused(self) -> None:
        flow = tiny_flow(self.version)
        with pytest.raises(ModelError) as caught:
            flow.decoder.noise(MAX_FRAMES + 1, torch.zeros(1))
        assert caught.value.code == "model_input_invalid"
