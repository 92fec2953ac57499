"""The flow of Fun-CosyVoice 3 is upstream's CausalMaskedDiffWithDiT, stage by stage."""

from __future__ import annotations

import torch

from models.flow_dit import rotate
from models.flow_layers import gelu_tanh
from tests.models.flow_contract import FlowContract


class TestFlowV3(FlowContract):
    version = 3


def test_only_the_first_head_is_rotated() -> None:
    x = torch.randn(1, 5, 4 * 16)
    angle = torch.rand(5, 8)
    turned = rotate(x, angle.cos(), angle.sin())
    assert torch.equal(turned[..., 16:], x[..., 16:])
    assert not torch.allclose(turned[..., :16], x[..., :16])
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))


def test_our_gelu_is_the_tanh_approximation() -> None:
    x = torch.linspace(-50, 50, 10001)
    assert torch.allclose(gelu_tanh(x), torch.nn.functional.gelu(x, approximate="tanh"), rtol=1e-6, atol=1e-6)
