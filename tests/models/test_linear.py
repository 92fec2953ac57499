"""Products in every precision: how close they are, and that rows do not depend on each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.errors import ModelError
from models.linear import Linear, linear
from models.precision import int8_supported

NEEDS_INT8 = pytest.mark.skipif(not int8_supported(), reason="this processor has no AVX-512 VNNI")
EXACT, HALF, BYTE = torch.float32, torch.bfloat16, torch.int8
ERRORS = [
    pytest.param(EXACT, 1e-6, id="float32"),
    pytest.param(HALF, 4e-3, id="bfloat16"),
    pytest.param(BYTE, 1.2e-2, id="int8", marks=NEEDS_INT8),
]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(("dtype", "error"), ERRORS)
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_outputs_lie_side_by_side_and_close_to_the_exact_product(dtype: torch.dtype, error: float, rows: int) -> None:
    weights, biases, x = [drawn(48, 96), drawn(16, 96, seed=1)], [drawn(48, seed=2), drawn(16, seed=3)], drawn(rows, 96)
    y = linear(weights, biases, dtype=dtype)(x)
    assert (y.dtype, y.shape) == (torch.float32, (rows, 64))
    assert relative_error(y, x.double() @ torch.cat(weights).double().T + torch.cat(biases)) < error


@pytest.mark.parametrize(("dtype", "error"), ERRORS)
def test_a_residual_is_added_in_float32(dtype: torch.dtype, error: float) -> None:
    weight, x, residual = drawn(64, 96), drawn(5, 96, seed=1), 1000 + drawn(5, 64, seed=2)
    before = residual.clone()
    y = linear([weight], dtype=dtype)(x, residual)
    assert relative_error(y.double() - residual, x.double() @ weight.double().T) < error + 1e-4
    assert torch.equal(residual, before)


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(lambda weight: linear([weight], dtype=EXACT, rowwise=True), id="float32"),
        pytest.param(lambda weight: linear([weight], dtype=HALF), id="bfloat16"),
        pytest.param(lambda weight: linear([weight], dtype=BYTE), id="int8", marks=NEEDS_INT8),
    ],
)
def test_rows_are_close_to_the_same_in_any_company(product) -> None:
    """To the bit where the processor has units for the precision; everywhere far closer than the precision itself."""
    run: Linear = product(drawn(160, 128))
    x = drawn(40, 128, seed=1)
    together = run(x)
    for rows in (1, 2, 5, 16):
        assert relative_error(run(x[:rows]), together[:rows].double()) < 2e-4


@NEEDS_INT8
def test_eight_bits_are_exact_sums_of_sixteen_bit_activations() -> None:
    weight = torch.randint(-127, 128, (64, 4864), generator=torch.Generator().manual_seed(0)).float()
    weight[:, 0] = 127
    x = drawn(3, 4864)
    expected = x.double() @ weight.double().T
    y = linear([weight], dtype=BYTE)(x)
    assert relative_error(y, expected) < 5e-5  # bfloat16 activations: 2e-3
    for row in range(3):
        assert torch.equal(linear([weight], dtype=BYTE)(x[row : row + 1])[0], y[row])


@NEEDS_INT8
def test_a_large_neighbour_does_not_cost_a_row_its_digits() -> None:
    run, x = linear([drawn(64, 96)], dtype=BYTE), drawn(4, 96, seed=1)
    alone = run(x[:1])
    x[1:] *= 1e6
    assert torch.equal(run(x)[:1], alone)


@pytest.mark.parametrize(("dtype", "error"), ERRORS)
def test_zeros_stay_zeros_and_what_is_not_finite_shows(dtype: torch.dtype, error: float) -> None:
    weight = drawn(32, 64)
    weight[3] = 0
    run = linear([weight], dtype=dtype)
    x = torch.zeros(4, 64)
    assert torch.equal(run(x), torch.zeros(4, 32))
    x[1, 5], x[2, 6] = torch.nan, torch.inf
    y = run(x)
    assert torch.equal(y[[0, 3]], torch.zeros(2, 32))
    assert not y[1].isfinite().any()
    assert not y[2].isfinite().all()


def test_float32_weights_are_used_where_they_lie() -> None:
    weight, x = drawn(8, 16), drawn(2, 16, seed=1)
    in_place, copied = linear([weight], dtype=EXACT), linear([weight.half()], dtype=EXACT)
    weight.zero_()
    assert not in_place(x).any()
    assert copied(x).any()


def test_eight_bits_elsewhere_are_an_error_of_their_own() -> None:
    with pytest.raises(ModelError) as caught:
        linear([torch.zeros(8, 16, device="meta")], dtype=BYTE, device="meta")
    assert caught.value.code == "precision_unsupported"
