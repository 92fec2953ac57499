"""The flow of Fun-CosyVoice 3 is upstream's CausalMaskedDiffWithDiT, stage by stage."""

from __future__ import annotations

import torch

from models.flow_dit import RotaryAttention
from models.flow_layers import gelu_tanh
from tests.models.flow_contract import FlowContract


class TestFlowV3(FlowContract):
    version = 3


def test_only_the_first_head_is_rotated() -> None:
    attention = RotaryAttention(24, heads=4, width=16)
    attention.pack()
    x, angle = torch.randn(1, 5, 24), torch.rand(5, 8)
    with torch.inference_mode():
        plain, rotated = attention.project(x), attention.rotated(x, angle.cos(), angle.sin())
    for before, after in zip(plain[:2], rotated[:2], strict=True):
        assert torch.equal(after[:, :, 1:], before[:, :, 1:])
        assert not torch.allclose(after[:, :, 0], before[:, :, 0])
        assert torch.allclose(after.norm(dim=-1), before.norm(dim=-1))
    assert torch.equal(rotated[2], plain[2])


def test_our_gelu_is_the_tanh_approximation() -> None:
    x = torch.linspace(-50, 50, 10001)
    assert torch.allclose(gelu_tanh(x), torch.nn.functional.gelu(x, approximate="tanh"), rtol=1e-6, atol=1e-6)
