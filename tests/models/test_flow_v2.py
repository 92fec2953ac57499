"""The flow of CosyVoice 2 is upstream's CausalMaskedDiffWithXvec, stage by stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models.flow_encoder import relative_sinusoids
from models.flow_layers import mish
from tests.models.flow_contract import FlowContract
from tests.models.flow_stages import CASES, array, close, piece, tiny_flow


class TestFlowV2(FlowContract):
    version = 2


@pytest.mark.parametrize("case", CASES)
def test_the_encoder(case: str) -> None:
    flow: Any = tiny_flow(2)
    seen: list[torch.Tensor] = []
    observe = flow.encoder.register_forward_hook(lambda module, inputs, output: seen.append(output))
    try:
        with torch.inference_mode():
            flow.means([piece(2, case)])
    finally:
        observe.remove()
    assert close(seen[0], array(2, f"flow.{case}.encoder_out"))


def test_kept_positions_serve_any_length() -> None:
    """The table of relative positions grows with the longest input; its middle is the table of a shorter one."""
    assert torch.equal(relative_sinusoids(300, 64)[300 - 7 : 300 + 6], relative_sinusoids(7, 64))


def test_our_mish_is_mish() -> None:
    x = torch.linspace(-100, 100, 20001)
    assert torch.allclose(mish(x), torch.nn.functional.mish(x), rtol=1e-6, atol=1e-6)
