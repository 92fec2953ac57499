"""Which precision is preferred where."""

from __future__ import annotations

import pytest
import torch

from models.precision import int8_supported, packs, preferred_decode_dtype, preferred_dtype


def processor(monkeypatch: pytest.MonkeyPatch, *, amx: bool, vnni: bool) -> None:
    monkeypatch.setattr("models.precision.packs", lambda device, dtype: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)


@pytest.mark.parametrize(
    ("amx", "vnni", "dtype", "decode_dtype"),
    [
        (True, True, torch.bfloat16, torch.int8),
        (False, True, torch.float32, torch.int8),
        (False, False, torch.float32, torch.float32),
    ],
)
def test_a_large_network_takes_what_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, amx: bool, vnni: bool, dtype: torch.dtype, decode_dtype: torch.dtype
) -> None:
    processor(monkeypatch, amx=amx, vnni=vnni)
    assert preferred_dtype(896, "cpu") == dtype
    assert preferred_decode_dtype(896, "cpu") == decode_dtype


def test_a_small_network_stays_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    processor(monkeypatch, amx=True, vnni=True)
    assert preferred_dtype(160, "cpu") == preferred_decode_dtype(160, "cpu") == torch.float32


@pytest.mark.parametrize(("supported", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_gpu_takes_bfloat16_if_it_has_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert preferred_dtype(160, "cuda") == preferred_decode_dtype(896, "cuda:0") == dtype


def test_what_is_preferred_here_can_be_computed_here() -> None:
    """Asked of this processor, without anything replaced."""
    assert not int8_supported("cuda")
    assert not packs("cuda", torch.bfloat16)
    preferred = preferred_decode_dtype(896, "cpu")
    assert preferred != torch.int8 or int8_supported()
    assert preferred_dtype(896, "cpu") != torch.bfloat16 or packs("cpu", torch.bfloat16)
