"""Products with a network's weights: in float32, in half precision, or with the weights in eight bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from models.errors import ModelError
from models.precision import int8_supported, packs

_BYTE = 127.0  # a weight, and a digit of an activation, is in -127..127
_FINE = 254.0  # fine digits to a coarse one: half a coarse digit is 127 fine ones
_ZERO = 128  # what stands for zero among oneDNN's unsigned activations
_LEAST = 1e-30  # for rows of zeros


class Linear(Protocol):
    """A product with weights `[out, in]`."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x: [N, in]` of any float type -> `[N, out]` float32, to which `residual: [N, out]` is added."""


def linear(
    weights: Sequence[Tensor],
    biases: Sequence[Tensor] = (),
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    rowwise: bool = False,
) -> Linear:
    """The product with all of `weights: [out, in]` in one go, their outputs side by side.

    float32 weights on the CPU stay where they are, unless `rowwise`: then, and
    with bfloat16 and int8, a row's result on the CPU does not depend on how many rows there are. All others are copied
    once. Raises ModelError precision_unsupported for int8 where there are no such products.
    """
    device = torch.device(device)
    bias = torch.cat(list(biases)).to(device, torch.float32) if biases else None
    if dtype == torch.int8:
        if not int8_supported(device):
            raise ModelError("precision_unsupported", f"there are no products of eight bits on this {device.type}")
        return _Int8(weights, bias)
    exact = dtype == torch.float32 and not rowwise
    if exact and all(weight.dtype == dtype and weight.device == device for weight in weights):
        return _InPlace(weights, bias)
    weight = torch.cat([weight.to(device, dtype) for weight in weights])
    if exact:
        return _Transposed(weight, bias)
    return (_Packed if packs(device, dtype) else _Rounded)(weight, bias)


class _InPlace:
    """float32 weights as they lie, one or several of them."""

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None) -> None:
        sizes = [len(weight) for weight in weights]
        self._parts = list(zip(weights, [None] * len(sizes) if bias is None else bias.split(sizes), strict=True))
        self._transposed = weights[0].t()

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if residual is not None:
            return torch.addmm(residual, x, self._transposed)
        parts = [F.linear(x, weight, bias) for weight, bias in self._parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _Transposed:
    """float32 as `[in, out]`, which takes a third to a half of the time that `[out, in]` takes for a few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight.t().contiguous()
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        added = self._bias if residual is None else residual
        return torch.mm(x, self._weight) if added is None else torch.addmm(added, x, self._weight)


class _Rounded:
    """A weight of any float type, whose product has its precision. Bias and residual are added in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._dtype = weight.dtype
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = self._product(x.to(self._dtype))
        added = self._bias if residual is None else residual
        return y.float() if added is None else added + y

    def _product(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight)


class _Packed(_Rounded):
    """The weight in oneDNN's own layout, into which bfloat16 would otherwise be brought anew at every product."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(torch.ops.mkldnn._reorder_linear_weight(weight), bias)

    def _product(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")


class _Int8:
    """Eight bits for a weight, with a scale for each output; sixteen for an activation, with a scale for each row.

    An activation has two digits, coarse + fine / 254, each in a row of its own, so that the weights, which take the
    time, are read once. The sums are whole numbers, exact, and so the same however many rows there are.
    """

    def __init__(self, weights: Sequence[Tensor], bias: Tensor | None) -> None:
        scales, levels = zip(*map(_levels, weights), strict=True)
        self._scale = torch.cat(scales)
        self._weight = torch.ops.onednn.qlinear_prepack(torch.cat(levels), None)
        self._zeros = torch.zeros(len(self._scale), dtype=torch.int64)
        self._bias = torch.zeros(len(self._scale)) if bias is None else bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        count = len(x)
        x = x.float()
        scale = x.abs().amax(dim=1, keepdim=True).clamp_(min=_LEAST).div_(_BYTE)
        digits = x.new_empty(2 * count, x.shape[1])
        coarse, fine = digits[:count], digits[count:]
        torch.div(x, scale, out=fine)
        torch.round(fine, out=coarse)
        fine.sub_(coarse).mul_(_FINE)
        digits.add_(_ZERO + 0.5)  # the conversion cuts off
        sums = torch.ops.onednn.qlinear_pointwise(
            digits.to(torch.uint8), 1.0, _ZERO, self._weight, self._scale, self._zeros, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        y = sums[:count].add_(sums[count:], alpha=1 / _FINE)
        return torch.addcmul(self._bias if residual is None else residual, y, scale, out=y)


def _levels(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight's scales, `[out]`, and its values in them, int8."""
    weight = weight.float()
    scale = weight.abs().amax(dim=1).clamp_(min=_LEAST).div_(_BYTE)
    return scale, (weight / scale[:, None]).round_().to(torch.int8)
