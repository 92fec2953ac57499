"""Which precision a device computes a network in fastest, and what it can compute in at all."""

from __future__ import annotations

import torch

_LARGE = 512  # width of the layers from which on a step's time goes to weights and products, not to launches


def preferred_dtype(width: int, device: torch.device | str) -> torch.dtype:
    """bfloat16 where the device has units for its products and the network, by the `width` of its layers, is large.

    Else float32. AVX-512's bfloat16 instructions are no such units: large products take longer with them.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    units = packs(device, torch.bfloat16) and torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if units and width >= _LARGE else torch.float32


def preferred_decode_dtype(width: int, device: torch.device | str) -> torch.dtype:
    """The same for a network that makes one position at a time, and so reads all of its weights for little work: int8
    where there are such products."""
    return torch.int8 if width >= _LARGE and int8_supported(device) else preferred_dtype(width, device)


def int8_supported(device: torch.device | str = "cpu") -> bool:
    """Whether products with eight-bit weights are exact and fast: on processors with AVX-512 VNNI."""
    return (
        torch.device(device).type == "cpu" and torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()
    )


def packs(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether oneDNN has a layout of its own for weights of this type."""
    if torch.device(device).type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
