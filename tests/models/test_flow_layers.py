"""Layers of the flow in bfloat16: weights in a layout that is made once give what plain weights give."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from models.config import load_config
from models.flow import Flow
from models.flow_layers import CausalConv, Linear, product
from models.precision import packs
from tests.golden import golden

HALF = torch.bfloat16
pytestmark = pytest.mark.skipif(not packs("cpu", HALF), reason="this processor has no products in bfloat16")


@pytest.mark.parametrize("rows", [1, 50, 130])
def test_a_product_is_the_same_in_either_layout(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, rows, 96, generator=generator), torch.randn(160, 96, generator=generator)
    bias = torch.randn(160, generator=generator)
    with torch.inference_mode():
        ordered = torch.ops.mkldnn._reorder_linear_weight(weight.to(HALF))
        given = product(x.to(HALF), ordered, bias.to(HALF))
    assert given.dtype == HALF
    exact = F.linear(x, weight, bias)
    assert (given - exact).norm() < 1e-2 * exact.norm()


@pytest.mark.parametrize("version", [2, 3])
def test_no_weight_of_the_estimator_is_brought_into_its_layout_at_every_call(version: int) -> None:
    estimator = Flow.load(load_config(golden(version).dir), dtype=HALF).decoder.estimator
    layers = [layer for layer in estimator.modules() if isinstance(layer, (Linear, CausalConv))]
    assert layers
    for layer in layers:
        for weight in layer.parameters():
            assert weight.dtype == HALF
            assert weight.is_mkldnn or weight.dim() == 1
